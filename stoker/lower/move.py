"""Moving elements: concatenation, padding, flipping, repeating, triangles, and values written into a part of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.loop import view
from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Computed, Index, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.index import counted_from_0
from stoker.lower.operand import broadcast_index, is_tensor, number, require_supported
from stoker.lower.registry import Bound, LeftToLibrary, Operand, Result, Size, leave_if, lower
from stoker.lower.view import dimension, slice_start
from stoker.shape.expr import Expr, as_expr, constant

MOST_CHOICES = 4
"""Parts of a concatenation that are chosen from element by element instead of being written one after another."""
CHEAP_PART = 12


@lower("cat.default")
def cat(builder: Builder, out: Result, tensors: list[Tensor], dim: int = 0) -> Tensor:
    """Each part is written straight to its place in the result, or chosen where the result is used if parts are cheap."""
    require_supported(out.dtype, *(t.dtype for t in tensors))
    dim = dimension(dim, len(out.sizes))
    parts = [t for t in tensors if not (len(t.sizes) == 1 and t.sizes[0].value == 0)] or tensors[:1]
    leave_if(any(len(t.sizes) != len(out.sizes) for t in parts), "parts of different ranks")
    if len(parts) == 1 and parts[0].strides == out.strides and parts[0].dtype is out.dtype:
        return parts[0]
    cheap = len(parts) <= MOST_CHOICES and all(isinstance(p, Stored) or p.cost <= CHEAP_PART for p in parts)
    if cheap and builder.usage.used_in_loops:
        return _chosen(builder, out, parts, dim)
    whole = builder.new_buffer(out)
    start = constant(0)
    for part in parts:
        target = view.narrow(whole, dim, start, part.sizes[dim], constant(1))
        assert isinstance(target, Stored)
        builder.write(part, target)
        start = start + part.sizes[dim]
    return whole


def _chosen(builder: Builder, out: Result, parts: list[Tensor], dim: int) -> Computed:
    """A concatenation that is not written down: the index says which part to read."""

    def element(at: Index) -> LoopValue:
        starts = [constant(0)]
        for part in parts:
            starts.append(starts[-1] + part.sizes[dim])

        def read(position: int) -> Any:
            shifted = (*at[:dim], at[dim] - starts[position], *at[dim + 1 :])
            return ops.to_dtype(parts[position].at(shifted), out.dtype)

        def choose(position: int) -> Any:
            if position == len(parts) - 1:
                return read(position)
            inside, beyond = less(at[dim], starts[position + 1]), at_least(at[dim], starts[position + 1])
            rest = ops.masked(beyond, lambda: choose(position + 1), number(0, out.dtype))
            return ops.masked(inside, lambda: read(position), rest)

        return choose(0)

    return builder.compute(out, element, parts, cost=3 * len(parts))


def less(a: Expr, b: Expr) -> Any:
    """The condition a < b, as a value."""
    return ops.lt(ops.index(a, torch.int64), ops.index(b, torch.int64))


def at_least(a: Expr, b: Expr) -> Any:
    return ops.ge(ops.index(a, torch.int64), ops.index(b, torch.int64))


def all_of(conditions: list[Any]) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = ops.bitwise_and(result, condition)
    return result


@lower("constant_pad_nd.default")
def pad(builder: Builder, out: Result, x: Tensor, amounts: list[Any], value: Operand = 0) -> Computed:
    require_supported(out.dtype)
    ends = [*map(as_expr, amounts), *[constant(0)] * (2 * len(x.sizes) - len(amounts))]  # of the last dimension first
    before, after = ends[-2::-2], ends[::-2]

    def element(at: Index) -> LoopValue:
        inside = tuple(i - b for i, b in zip(at, before))
        tests = [at_least(i, constant(0)) for i, b in zip(inside, before) if b.value != 0]
        tests += [less(i, s) for i, s, a in zip(inside, x.sizes, after) if a.value != 0]
        if not tests:
            return x.at(inside)
        return ops.masked(all_of(tests), lambda: x.at(inside), number(value, out.dtype))

    return builder.compute(out, element, [x], cost=4)


@lower("copy.default")
def copy_over(builder: Builder, out: Result, target: Tensor, source: Tensor, non_blocking: bool = False) -> Computed:
    """The source as the target is: its type and strides."""
    require_supported(out.dtype, source.dtype)

    def element(at: Index) -> LoopValue:
        return ops.to_dtype(source.at(broadcast_index(at, source.sizes, out.sizes)), out.dtype)

    return builder.compute(out, element, [source])


@lower("flip.default")
def flip(builder: Builder, out: Result, x: Tensor, dims: list[int]) -> Tensor:
    require_supported(x.dtype)
    turned = {dimension(d, len(x.sizes)) for d in dims}

    def element(at: Index) -> LoopValue:
        return x.at(tuple(x.sizes[d] - 1 - i if d in turned else i for d, i in enumerate(at)))

    return builder.compute(out, element, [x])


@lower("repeat.default")
def repeat(builder: Builder, out: Result, x: Tensor, repeats: Any) -> Tensor:
    require_supported(x.dtype)
    lead = len(out.sizes) - len(x.sizes)

    def element(at: Index) -> LoopValue:
        zero = constant(0)
        return x.at(tuple(zero if s.value == 1 else at[lead + d] % s for d, s in enumerate(x.sizes)))

    leave_if(any(s.value == 0 for s in out.sizes), "an empty result")
    return builder.compute(out, element, [x])


@lower("tril.default", keep=lambda offset, diagonal: less(offset, diagonal + 1))
@lower("triu.default", keep=at_least)
def triangle(
    builder: Builder, out: Result, x: Tensor, diagonal: Any = 0, *, keep: Callable[[Expr, Expr], Any]
) -> Computed:
    require_supported(x.dtype)

    def element(at: Index) -> LoopValue:
        return ops.where(keep(at[-1] - at[-2], as_expr(diagonal)), x.at(at), number(0, x.dtype))

    return builder.compute(out, element, [x], cost=2)


@lower("select_scatter.default")
def select_scatter(builder: Builder, out: Result, x: Tensor, source: Tensor, dim: int, at: Any) -> Computed:
    dim, place = dimension(dim, len(x.sizes)), as_expr(at)
    if place.value is None:
        raise LeftToLibrary("the sign of the index depends on symbols")
    place = place if place.value >= 0 else place + x.sizes[dim]
    require_supported(x.dtype, source.dtype)

    def element(i: Index) -> LoopValue:
        here = ops.eq(ops.index(i[dim], torch.int64), ops.index(place, torch.int64))
        inner = ops.masked(here, lambda: source.at(i[:dim] + i[dim + 1 :]), number(0, source.dtype))
        return ops.where(here, ops.to_dtype(inner, out.dtype), x.at(i))

    return builder.compute(out, element, [x, source], cost=4)


@lower("slice_scatter.default")
def slice_scatter(
    builder: Builder,
    out: Result,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: Bound = None,
    end: Bound = None,
    step: Size = 1,
) -> Computed:
    dim = dimension(dim, len(x.sizes))
    first, stride = slice_start(builder, dim, start, 3), as_expr(step)
    leave_if(stride.value is None, "the step depends on symbols")
    require_supported(x.dtype, source.dtype)
    last = first + (source.sizes[dim] - 1) * stride

    def element(i: Index) -> LoopValue:
        away = i[dim] - first
        tests = [at_least(i[dim], first), less(i[dim], last + 1)]
        if stride.value != 1:
            tests.append(ops.eq(ops.index(away % stride, torch.int64), number(0, torch.int64)))
        here = all_of(tests)
        at = (*i[:dim], away // stride, *i[dim + 1 :])
        inner = ops.masked(here, lambda: source.at(at), number(0, source.dtype))
        return ops.where(here, ops.to_dtype(inner, out.dtype), x.at(i))

    return builder.compute(out, element, [x, source], cost=6)


@lower("scatter.value")
def scatter_value(builder: Builder, out: Result, x: Tensor, dim: int, places: Tensor, value: Operand) -> Computed:
    """A scatter of one value along a dimension where the index has one element: a comparison (one-hot)."""
    dim = dimension(dim, len(x.sizes)) if x.sizes else 0
    same = x.sizes and all(p is s for d, (p, s) in enumerate(zip(places.sizes, x.sizes)) if d != dim)
    leave_if(not same or places.sizes[dim].value != 1 or is_tensor(value), "a scatter of several values")
    require_supported(x.dtype)

    def element(i: Index) -> LoopValue:
        given = places.at((*i[:dim], constant(0), *i[dim + 1 :]))
        chosen = ops.index(counted_from_0(given, x.sizes[dim], "element"), torch.int64)
        return ops.where(ops.eq(chosen, ops.index(i[dim], torch.int64)), number(value, out.dtype), x.at(i))

    return builder.compute(out, element, [x, places], cost=3)


@lower(
    "empty.memory_format",
    "empty_like.default",
    "empty_strided.default",
    "new_empty.default",
    "new_empty_strided.default",
)
def empty(builder: Builder, out: Result, *arguments: Any, **options: Any) -> Stored:
    """A buffer that nobody writes."""
    require_supported(out.dtype)
    return builder.blank(out)
