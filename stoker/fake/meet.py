"""Writes that meet: an operator writes to elements that lie in one place, or to elements that it also reads.

In:  an operator that writes, and arguments with fake tensors.
Out: eager's error where eager refuses it. Which operators refuse what, eager is asked, on memory that is shared alike. Sizes that
     only data tells are some number then: where eager refuses that, it must be asked again when the data is there. That one argument
     ends in memory before another begins, or begins where it does, is guarded: `x[:n] += x[-n:]` is three programs
     (tests/differential/test_written_by_sizes.py).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.foreign import size_now, tensors_in
from stoker.fake.meta import Meta, is_untold
from stoker.fake.tensor import FakeStorage, FakeTensor
from stoker.nest import map_leaves
from stoker.shape.env import DataDependent
from stoker.shape.walk import evaluate, free_symbols


class Refused(RuntimeError):
    """Eager's own error about memory that is written, foretold."""


def write_meets(tensors: Sequence[FakeTensor], written: Sequence[int]) -> bool:
    """May a written tensor hold an element twice, or share one with another argument?"""
    for index in written:
        target = tensors[index]
        if any(type(stride) is int and stride == 0 for stride in target.meta.strides):
            return True
        for other, tensor in enumerate(tensors):
            if other != index and tensor.memory is target.memory:
                return True
    return False


def eager_refuses(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run eager on zeros that lie in memory as the arguments do; its error, if it has one."""
    fakes = tensors_in([args, kwargs])
    for a, b in itertools.combinations(fakes, 2):
        if a.memory is b.memory and not (ends_before(a.meta, b.meta) or ends_before(b.meta, a.meta)):
            _begin_together(a.meta, b.meta)
    with (
        torch_private.dispatch_modes_off(),
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        warnings.catch_warnings(action="ignore"),
    ):
        memory = _memory(fakes)
        known = {id(fake): _stand_in(fake, memory) for fake in fakes}  # eager looks whether two are one object
        given_args, given_kwargs = map_leaves(lambda leaf: known.get(id(leaf), _plain(leaf)), [args, kwargs])
        try:
            func(*given_args, **given_kwargs)
        except RuntimeError as error:
            if _ABOUT_MEMORY not in str(error):  # another error may be about zeros: a matrix to invert, a divisor
                return
            if any(is_untold(number) for fake in fakes for number in _numbers(fake.meta)):
                raise DataDependent(
                    str(func), "it may write to memory that it reads, by a size that only data tells"
                ) from error
            raise Refused(str(error)) from error


def ends_before(a: Meta, b: Meta) -> bool:
    """Is the last element of one before the first of the other? Both lie on the same memory. Where sizes decide that, they are guarded."""
    numbers = *_numbers(a), *_numbers(b)
    if a.dtype.itemsize != b.dtype.itemsize or any(map(is_untold, numbers)):
        return False
    reach = sum((size - 1) * stride for size, stride in zip(a.sizes, a.strides))
    return bool(b.offset - a.offset - reach > 0)


def _begin_together(a: Meta, b: Meta) -> bool:
    """Is the first element of one that of the other, too? Guarded likewise."""
    return not any(map(is_untold, (a.offset, b.offset))) and bool(a.offset == b.offset)


Place = tuple[tuple[int, ...], tuple[int, ...], int]


def _memory(fakes: Sequence[FakeTensor]) -> dict[FakeStorage, torch.Tensor]:
    """Zeros for each memory, as much as the tensors reach."""
    reach: dict[FakeStorage, int] = {}
    for fake in fakes:
        sizes, strides, offset = _place(fake.meta)
        end = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
        reach[fake.memory] = max(reach.get(fake.memory, 0), end * fake.meta.dtype.itemsize)
    return {owner: torch.zeros(size_bytes, dtype=torch.uint8) for owner, size_bytes in reach.items()}


def _stand_in(fake: FakeTensor, memory: Mapping[FakeStorage, torch.Tensor]) -> torch.Tensor:
    sizes, strides, offset = _place(fake.meta)
    empty = torch.empty(0, dtype=fake.meta.dtype)
    return empty.set_(memory[fake.memory].untyped_storage(), offset, sizes, strides)


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, torch.SymFloat):
        return 0.0
    return _number(leaf) if isinstance(leaf, torch.SymInt) else leaf


def _place(meta: Meta) -> Place:
    """Sizes, strides and offset as they are in this call, or might be."""
    return tuple(map(_number, meta.sizes)), tuple(map(_number, meta.strides)), _number(meta.offset)


def _numbers(meta: Meta) -> tuple[Any, ...]:
    return *meta.sizes, *meta.strides, meta.offset


_SEVERAL = 2
"""What a size is taken for that only data tells: of one element, or none, eager refuses less."""


def _number(size: Any) -> int:
    if not is_untold(size):
        return size_now(size)
    env, expr = size.node.env, size.node.expr
    untold = {s: int(min(max(_SEVERAL, env.ranges[s].low), env.ranges[s].high)) for s in free_symbols(expr)}
    return max(evaluate(expr, {**untold, **env.hints}), 0)


_ABOUT_MEMORY = "single memory location"
"""In every message of ATen/MemoryOverlap.cpp."""
