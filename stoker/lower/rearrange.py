"""Elements in another order: rolled, shuffled, spread on a diagonal; and views that are copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Computed, Index, Tensor
from stoker.lower import scatter, unfold, view  # noqa: F401  (their lowerings are looked up)
from stoker.lower.builder import Builder
from stoker.lower.operand import number, require_supported
from stoker.lower.registry import LOWERINGS, Numbers, Result, find, leave_if, lower
from stoker.lower.view import dimension, flattened, position
from stoker.shape.expr import Expr, constant


def _read_at(builder: Builder, out: Result, x: Tensor, place: Callable[[Index], Index]) -> Tensor:
    require_supported(x.dtype)
    leave_if(any(size.value == 0 for size in out.sizes), "an empty result")
    return builder.compute(out, lambda at: x.at(place(at)), [x], cost=3)


@lower("roll.default")
def roll(builder: Builder, out: Result, x: Tensor, shifts: Numbers, dims: Sequence[int] | int = ()) -> Tensor:
    shifts = shifts if isinstance(shifts, Sequence) else [shifts]
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        return _rolled_as_one(builder, out, x, shifts[0])
    moved = {d: constant(0) for d in range(len(x.sizes))}
    for shift, d in zip(shifts, dims):
        moved[dimension(d, len(x.sizes))] += shift

    def place(at: Index) -> Index:
        return tuple((i - moved[d]) % x.sizes[d] if moved[d].value != 0 else i for d, i in enumerate(at))

    return _read_at(builder, out, x, place)


def _rolled_as_one(builder: Builder, out: Result, x: Tensor, shift: Any) -> Tensor:
    """All dimensions as one: an element moves by its number in the whole tensor."""
    flat = flattened(builder, x)
    (count,) = flat.sizes
    return _read_at(builder, out, flat, lambda at: ((position(at, x.sizes) - shift) % count,))


@lower("channel_shuffle.default")
def channel_shuffle(builder: Builder, out: Result, x: Tensor, groups: Any) -> Tensor:
    each = x.sizes[1] // groups
    return _read_at(builder, out, x, lambda at: (at[0], at[1] % groups * each + at[1] // groups, *at[2:]))


@lower("pixel_shuffle.default")
def pixel_shuffle(builder: Builder, out: Result, x: Tensor, factor: int) -> Tensor:
    def place(at: Index) -> Index:
        *lead, c, h, w = at
        return (*lead, (c * factor + h % factor) * factor + w % factor, h // factor, w // factor)

    return _read_at(builder, out, x, place)


@lower("pixel_unshuffle.default")
def pixel_unshuffle(builder: Builder, out: Result, x: Tensor, factor: int) -> Tensor:
    def place(at: Index) -> Index:
        *lead, c, h, w = at
        row, column = c // factor % factor, c % factor
        return (*lead, c // (factor * factor), h * factor + row, w * factor + column)

    return _read_at(builder, out, x, place)


def _same(a: Expr, b: Expr) -> Any:
    return ops.eq(ops.index(a, torch.int64), ops.index(b, torch.int64))


@lower("diag_embed.default")
def diag_embed(builder: Builder, out: Result, x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    require_supported(x.dtype)
    rank = len(out.sizes)
    a, b = dimension(dim1, rank), dimension(dim2, rank)
    row, column = max(-offset, 0), max(offset, 0)

    def element(at: Index) -> LoopValue:
        rest = tuple(i for d, i in enumerate(at) if d not in (a, b))
        here = _same(at[a] + column, at[b] + row)
        if row:
            here = ops.bitwise_and(here, ops.ge(ops.index(at[a], torch.int64), number(row, torch.int64)))
        if column:
            here = ops.bitwise_and(here, ops.ge(ops.index(at[b], torch.int64), number(column, torch.int64)))
        return ops.masked(here, lambda: x.at((*rest, at[a] - row)), number(0, x.dtype))

    return builder.compute(out, element, [x], cost=4)


@lower("eye.default", "eye.m")
def eye(builder: Builder, out: Result, *arguments: Any, **options: Any) -> Tensor:
    require_supported(out.dtype)
    return builder.compute(out, lambda at: ops.where(_same(*at), number(1, out.dtype), number(0, out.dtype)))


_COPIES = """
alias.default as_strided.default diagonal.default expand.default permute.default select.int slice.Tensor squeeze.default
squeeze.dim squeeze.dims t.default transpose.int unsqueeze.default view.default split.Tensor split_with_sizes.default unbind.int
detach.default unfold.default
"""


def _copied(operator: Any) -> Callable[..., Any]:
    """The copying form of a view: the view, seen as what is to be stored."""

    def lowering(builder: Builder, out: Any, x: Tensor, *arguments: Any, **options: Any) -> Tensor | list[Computed]:
        several = isinstance(out, list)
        require_supported(x.dtype)
        shown = LOWERINGS[operator](builder, out, x, *arguments, **options)
        made = [builder.compute(r, s.at, [s]) for r, s in zip(*((out, shown) if several else ([out], [shown])))]
        return made if several else made[0]

    return lowering


for _name in _COPIES.split():
    _packet, _, _overload = _name.partition(".")
    _copying, _viewing = find(f"{_packet}_copy.{_overload}"), find(_name)
    if _copying is not None:
        LOWERINGS[_copying] = _copied(_viewing)
