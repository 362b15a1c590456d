"""Where a buffer's elements lie.

A buffer is a name with a `Layout`. Strides are those that eager would give, so that a view of eager is a view here. A
flexible layout may be given other strides by the scheduler, because no one outside the program sees it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import torch

from stoker.shape.expr import Expr, constant
from stoker.shape.prove import bounds

P = ParamSpec("P")
Answer = TypeVar("Answer")

Sizes = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Type, device, sizes and strides (in elements) of a buffer."""

    dtype: torch.dtype
    device: torch.device
    sizes: Sizes
    strides: Sizes
    flexible: bool = True

    @property
    def reach(self) -> Expr:
        """Elements from the first to one past the last."""
        return _reach(self.sizes, self.strides)


Layouts = Mapping[str, Layout]
"""By the names of buffers."""


def of_lists(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """A function of lists whose answers are remembered: the same sizes are asked about in each layer."""
    remembered = functools.lru_cache(maxsize=1 << 14)(function)

    @functools.wraps(function)
    def call(*lists: P.args, **nothing: P.kwargs) -> Answer:
        return remembered(*map(tuple, lists))  # type: ignore[arg-type]  # all are lists

    return call


@of_lists
def _reach(sizes: Sizes, strides: Sizes) -> Expr:
    total = constant(1)
    for size, stride in zip(sizes, strides):
        if size.value == 0:
            return constant(0)
        total = total + (size - 1) * stride
    return total


@of_lists
def product(sizes: Sequence[Expr]) -> Expr:
    """The number of elements."""
    total = constant(1)
    for size in sizes:
        total = total * size
    return total


@of_lists
def contiguous(sizes: Sequence[Expr]) -> Sizes:
    """Row-major strides."""
    strides, running = [], constant(1)
    for size in reversed(sizes):
        strides.append(running)
        if size.value != 0:
            running = running * size
    return tuple(reversed(strides))


LARGEST_GAP = 16
"""Elements that any row may be longer than what is in it."""


@of_lists
def is_dense(sizes: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Do the elements fill a block, each once, in some order of dimensions?"""
    left = {i for i, size in enumerate(sizes) if size.value != 1}
    expected = constant(1)
    while left:
        fitting = next((i for i in left if strides[i] is expected), None)
        if fitting is None:
            return False
        left.remove(fitting)
        expected = expected * sizes[fitting]
    return True


def has_longer_rows(sizes: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Do they fill a block but for a small gap behind each row? So does a slice of rows that begin at aligned places."""
    if strides[-1].value != 1:
        return False
    steps = dict.fromkeys(stride for size, stride in zip(sizes[:-1], strides) if size.value != 1)
    return any(_is_small(row - sizes[-1], sizes[-1]) and is_dense((*sizes[:-1], row), strides) for row in steps)


def _is_small(gap: Expr, size: Expr) -> bool:
    found = bounds(gap, {})
    return found.low >= 0 and 0 < found.high <= max(size.value or 0, LARGEST_GAP)
