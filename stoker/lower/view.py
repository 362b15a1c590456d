"""Views: no copies, only other indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from stoker.fake.rules.view import slice_bounds
from stoker.loop import view
from stoker.loop.layout import Layout, Sizes, contiguous, product
from stoker.loop.view import Computed, Index, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.registry import Bound, Dims, LeftToLibrary, Numbers, Result, Size, leave_if, lower
from stoker.shape.env import DataDependent
from stoker.shape.expr import Expr, as_expr, constant
from stoker.shape.symnode import size_of


def dimension(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim % rank if rank else 0


@lower("permute.default")
def permute(builder: Builder, out: Result, x: Tensor, dims: Sequence[int]) -> Tensor:
    return view.permute(x, [dimension(d, len(x.sizes)) for d in dims])


@lower("t.default")
def transpose_matrix(builder: Builder, out: Result, x: Tensor) -> Tensor:
    return view.permute(x, range(len(x.sizes))[::-1])


@lower("transpose.int")
def transpose(builder: Builder, out: Result, x: Tensor, a: int, b: int) -> Tensor:
    order = list(range(len(x.sizes)))
    if order:
        a, b = dimension(a, len(order)), dimension(b, len(order))
        order[a], order[b] = order[b], order[a]
    return view.permute(x, order)


@lower("expand.default")
def expand(builder: Builder, out: Result, x: Tensor, size: Numbers, implicit: bool = False) -> Tensor:
    return view.expand(x, out.sizes)


@lower("unsqueeze.default")
def unsqueeze(builder: Builder, out: Result, x: Tensor, dim: int) -> Tensor:
    dim = dimension(dim, len(out.sizes))
    return view.unsqueeze(x, dim, out.strides[dim])


@lower("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(builder: Builder, out: Result, x: Tensor, dims: Dims = None) -> Tensor:
    rank = len(x.sizes)
    named = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    chosen = [dimension(d, rank) for d in named]
    gone = [d for d in chosen if d < rank and x.sizes[d].value == 1]
    leave_if(rank - len(gone) != len(out.sizes), "which dimensions have one element depends on symbols")
    return view.squeeze(x, gone)


@lower("alias.default", "detach.default", "lift_fresh.default", "lift.default")
def same(builder: Builder, out: Result, x: Tensor) -> Tensor:
    return x


@lower("select.int")
def select(builder: Builder, out: Result, x: Tensor, dim: int, at: Any) -> Tensor:
    dim = dimension(dim, len(x.sizes))
    place = as_expr(at)
    if place.value is None:
        raise LeftToLibrary("the sign of the index depends on symbols")
    return view.select(x, dim, place if place.value >= 0 else place + x.sizes[dim])


@lower("slice.Tensor")
def slice_(
    builder: Builder, out: Result, x: Tensor, dim: int = 0, start: Bound = None, end: Bound = None, step: Size = 1
) -> Tensor:
    dim = dimension(dim, len(x.sizes))
    return view.narrow(x, dim, slice_start(builder, dim, start, 2), out.sizes[dim], as_expr(step))


def slice_start(builder: Builder, dim: int, start: Bound, place: int) -> Expr:
    """Where a slice begins: from the end if negative, within the dimension. `place` is where the operator has `start`. Of symbols the
    answers hold that were given when the slice was traced, and are guarded."""
    given = builder.usage.operands
    asked = given[place] if place < len(given) else start
    leave_if(isinstance(asked, Expr), "a slice's start is given by name, and depends on symbols")
    try:
        return size_of(slice_bounds(given[0].shape[dim], asked, None)[0])
    except DataDependent as unknown:
        raise LeftToLibrary("only data tells whether a slice begins at the end") from unknown


@lower("split.Tensor", "split_with_sizes.default")
def split(builder: Builder, out: list[Result], x: Tensor, sizes: Any, dim: int = 0) -> list[Tensor]:
    dim = dimension(dim, len(x.sizes))
    parts, start = [], constant(0)
    for result in out:
        parts.append(view.narrow(x, dim, start, result.sizes[dim], constant(1)))
        start = start + result.sizes[dim]
    return parts


@lower("unbind.int")
def unbind(builder: Builder, out: list[Result], x: Tensor, dim: int = 0) -> list[Tensor]:
    dim = dimension(dim, len(x.sizes))
    return [view.select(x, dim, constant(at)) for at in range(len(out))]


@lower("view.default", "_unsafe_view.default", "reshape.default")
def reshape(builder: Builder, out: Result, x: Tensor, size: Numbers) -> Tensor:
    return reshaped(builder, x, out.sizes, out.strides)


def flattened(builder: Builder, x: Tensor) -> Tensor:
    """All dimensions as one."""
    count = product(x.sizes)
    leave_if(count.value == 0 or not x.sizes, "a tensor without dimensions or elements")
    return reshaped(builder, x, (count,), (constant(1),))


def reshaped(builder: Builder, x: Tensor, sizes: Sizes, strides: Sizes) -> Tensor:
    """The same elements in another shape. Merging dimensions of a computed tensor would cost divisions: it is stored."""
    if x.sizes == sizes:
        return x
    if any(size.value == 0 for size in sizes):
        return builder.blank(Layout(x.dtype, x.device, sizes, strides))
    if isinstance(x, Computed):
        base = view.split_map(x.sizes, sizes)
        if base is not None:
            return view.remap(x, sizes, strides, base)
        x = builder.store(x)
    found = view.reshape_strides(x.sizes, x.strides, sizes)
    if found is None and builder.free_layout:
        result = Result(x.dtype, x.device, x.sizes, contiguous(x.sizes))
        x = builder.store(builder.compute(result, x.at, [x]))
        found = view.reshape_strides(x.sizes, x.strides, sizes)
    if found is not None:
        return replace(x, sizes=sizes, strides=found)
    return _by_division(x, sizes, strides)


def position(place: Sequence[Expr], sizes: Sequence[Expr]) -> Expr:
    """The number of an element in its image."""
    found = constant(0)
    for i, size in zip(place, sizes):
        found = found * size + i
    return found


def _by_division(x: Stored, sizes: Sizes, strides: Sizes) -> Computed:
    """A view that strides cannot express: the linear position is taken apart again."""

    def base(index: Index) -> Index:
        place = position(index, sizes)
        result: list[Expr] = []
        for size in reversed(x.sizes):
            result.append(place % size)
            place = place // size
        return tuple(reversed(result))

    return Computed(x.dtype, x.device, sizes, strides, lambda index: x.at(base(index)), frozenset({x.buffer}), cost=4)


@lower("diagonal.default")
def diagonal(builder: Builder, out: Result, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    rank = len(x.sizes)
    a, b = dimension(dim1, rank), dimension(dim2, rank)
    kept = [d for d in range(rank) if d not in (a, b)]
    row, column = max(-offset, 0), max(offset, 0)

    def base(index: Index) -> Index:
        result: list[Any] = [None] * rank
        for position, d in enumerate(kept):
            result[d] = index[position]
        result[a], result[b] = index[-1] + row, index[-1] + column
        return tuple(result)

    strides = (*(x.strides[d] for d in kept), x.strides[a] + x.strides[b]) if isinstance(x, Stored) else out.strides
    return view.view(x, out.sizes, strides, base, x.strides[a] * row + x.strides[b] * column)


@lower("view.dtype")
def view_dtype(builder: Builder, out: Result, x: Tensor, dtype: torch.dtype) -> Tensor:
    leave_if(dtype.itemsize != x.dtype.itemsize, "the elements change size")
    return replace(builder.store(x), dtype=dtype)
