"""Long reductions in pieces, so that all of a device is busy; a second kernel reduces the results of the pieces.

In:  the sizes of the loops to be reduced over, and how many pieces are wanted.
Out: a `Cut`. The first loops are taken point by point, the next is cut: where that leaves no rest, or into pieces of which the last may
     reach beyond the loop's end, where elements count for nothing. A loop whose size is not known is cut so too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import Sizes
from stoker.loop.view import Index
from stoker.shape.expr import constant

IN_PIECES = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""Reductions of which the results of pieces can be reduced again."""


@dataclass(frozen=True, slots=True)
class Cut:
    """For each loop the number of its pieces and the length of one."""

    counts: Sizes
    lengths: Sizes
    ragged: int | None = None
    """The loop whose last piece may reach beyond its end."""

    def place(self, piece: Index, within: Index) -> Index:
        return tuple(p * length + i for p, length, i in zip(piece, self.lengths, within, strict=True))


def cut(sizes: Sizes, wanted: int) -> Cut | None:
    """Pieces of these loops, about as many as wanted; none if there is nothing to cut. A piece has all of the loops behind the one that is cut, so
    that it lies along memory."""
    counts: list[int] = []
    for loop, size in enumerate(sizes):
        left = wanted // math.prod(counts)
        if size.value is None or size.value > left:
            return _cut_here(sizes, counts, loop, left)
        counts.append(size.value)
    return None


def _cut_here(sizes: Sizes, whole: list[int], loop: int, wanted: int) -> Cut:
    """Every point of the loops before this one, and this one in pieces."""
    size = sizes[loop]
    number = wanted if size.value is None else _divisor(size.value, wanted)
    length, ragged = size // number, None
    if size.value is None or number * 2 < wanted or number < min(2, wanted):
        number, ragged = wanted, loop
        length = (size + (wanted - 1)) // wanted
        if size.value is not None and length.value:
            number = -(-size.value // length.value)
    rest = sizes[loop + 1 :]
    counts = (*map(constant, (*whole, number)), *(constant(1) for _ in rest))
    return Cut(counts, (*(constant(1) for _ in whole), length, *rest), ragged)


def _divisor(size: int, most: int) -> int:
    """The largest number of equal pieces."""
    return max(n for n in range(1, most + 1) if size % n == 0)


_NEUTRAL = {"sum": 0, "add": 0, "prod": 1, "mul": 1, "any": False, "all": True}


def neutral(kind: str, dtype: torch.dtype) -> Any:
    """What changes nothing that it is combined with."""
    if kind in _NEUTRAL:
        return _NEUTRAL[kind]
    if dtype.is_floating_point:
        return float("-inf") if kind == "max" else float("inf")
    if dtype is torch.bool:
        return kind == "min"
    return torch.iinfo(dtype).min if kind == "max" else torch.iinfo(dtype).max


def inside(at: Index, sizes: Sizes, made: Cut, kind: str, dtype: torch.dtype, element: Any) -> LoopValue:
    """The element at a place, or what counts for nothing if that is beyond the loops."""
    if made.ragged is None:
        return element()
    here, size = at[made.ragged], sizes[made.ragged]
    return ops.masked(
        ops.lt(ops.index(here, torch.int64), ops.index(size, torch.int64)),
        element,
        ops.constant(neutral(kind, dtype), dtype),
    )
