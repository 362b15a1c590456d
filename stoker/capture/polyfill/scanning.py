"""Control flow in terms of other control flow: functions over sequences by `scan`, loops that carry integers by loops over tensors."""

from __future__ import annotations

from typing import Any

import torch

from stoker import torch_private


def mapped(function: Any, sequences: Any, *others: Any) -> Any:
    """`map`: a scan that carries nothing."""
    return torch_private.scan(lambda _, element: ((), function(element, *others)), (), sequences)[1]


def flat_map(function: Any, sequences: Any, others: Any) -> Any:
    """The operator behind `map`, of lists: what elements become is nested."""
    return mapped(lambda elements: function(*elements, *others), list(sequences))


def one_by_one(combine: Any, first: Any, rest: Any) -> Any:
    """`associative_scan` from the first element to the last."""

    def step(before: Any, element: Any) -> Any:
        made = combine(before, element)
        return made, made

    _, found = torch_private.scan(step, first, rest)
    return joined(first, found)


def joined(first: Any, rest: Any) -> Any:
    """The first element and the others as one sequence, in nested containers."""
    if isinstance(first, torch.Tensor):
        return torch.cat([first.unsqueeze(0), rest])
    if isinstance(first, dict):
        return {key: joined(value, rest[key]) for key, value in first.items()}
    return type(first)([joined(a, b) for a, b in zip(first, rest)])


def laid_out(condition: Any, body: Any, carried: Any, others: Any, orders: Any, backs: Any) -> Any:
    """`while_loop` of tensors that lie in another order than the plain one: they travel in the order of memory."""

    def permuted(state: Any, by: Any) -> Any:
        return tuple([t if order is None else t.permute(order) for t, order in zip(state, by)])

    def holds(*state: Any) -> Any:
        return condition(*permuted(state, backs), *others)

    def step(*state: Any) -> Any:
        return permuted(body(*permuted(state, backs), *others), orders)

    return permuted(torch_private.while_loop(holds, step, permuted(carried, orders)), backs)


def counting(condition: Any, body: Any, carried: Any, others: Any) -> Any:
    """`while_loop` where some of what is carried are integers: they travel as tensors."""

    def tensors(value: Any, like: Any) -> Any:
        if isinstance(like, int):
            return torch.full((), value, dtype=torch.int64)
        return same(tensors, value, like)

    def numbers(value: Any, like: Any) -> Any:
        if isinstance(like, int):
            return value.item()
        return same(numbers, value, like)

    def holds(*state: Any) -> Any:
        found = condition(*numbers(state, carried), *others)
        return found if isinstance(found, torch.Tensor) else torch.full((), int(found), dtype=torch.int64) != 0

    def step(*state: Any) -> Any:
        return tensors(tuple(body(*numbers(state, carried), *others)), carried)

    return numbers(torch_private.while_loop(holds, step, tensors(carried, carried)), carried)


def same(part: Any, value: Any, like: Any) -> Any:
    """A function of each part of nested containers, beside that of another."""
    if isinstance(like, torch.Tensor):
        return value
    if len(value) != len(like):
        raise ValueError("what is carried out of a step is not what was carried into it")
    if isinstance(like, dict):
        return {key: part(value[key], inside) for key, inside in like.items()}
    return type(like)([part(v, inside) for v, inside in zip(value, like)])
