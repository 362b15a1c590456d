"""Functions over sequences of tensors, in terms of `scan`."""

from __future__ import annotations

from typing import Any

import torch

from stoker import torch_private


def mapped(function: Any, sequences: Any, *others: Any) -> Any:
    """`map`: a scan that carries nothing."""
    return torch_private.scan(lambda _, element: ((), function(element, *others)), (), sequences)[1]


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
