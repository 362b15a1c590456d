"""Pooling: windows over images of one, two or three dimensions.

Small windows are written out element by element, so that they vectorize along the image (or along its channels, where those are
fastest) and fuse with what stands before and behind. The elements of large ones are a reduction, and so are those of windows of
different sizes along channels, where a condition holds for all or none. Gradients gather: an element of the image reads the windows
that hold it; where that measured slower than ATen's kernels it is declined.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import contiguous
from stoker.loop.view import Computed, Index, Tensor
from stoker.lower.axis import Adaptive, Axis, Sliding
from stoker.lower.builder import Builder
from stoker.lower.conv import channels_last, is_channels_last, laid_like
from stoker.lower.move import all_of
from stoker.lower.operand import compute_dtype, number, require_supported
from stoker.lower.registry import LeftToLibrary, Numbers, Result, leave_if, lower
from stoker.lower.view import position
from stoker.shape.expr import Expr, constant

LARGEST_WINDOW = 25
"""Elements of a window that are written out."""
LARGEST_BODY = 80
"""Additions in a window beyond which what is pooled is stored first."""

Axes = Sequence[Axis]

Several = list[Tensor | None]
"""Results of an operator that has several; None for one that nobody reads."""


def _filled(given: Any, defaults: list[Any]) -> list[Any]:
    return [*given, *defaults[len(given) :]]


def _each(value: Any, rank: int, default: list[int] | None = None) -> list[int]:
    """A number for each dimension of the image."""
    given = [value] if isinstance(value, int) else list(value)
    if not given and default is not None:
        return default
    leave_if(not all(isinstance(v, int) for v in given), "the window's size depends on symbols")
    return given * rank if len(given) == 1 else given


def _sliding(
    image: Sequence[Expr], out: Sequence[Expr], kernel: Any, stride: Any, padding: Any, dilation: Any = 1
) -> list[Sliding]:
    rank = len(image)
    size = _each(kernel, rank)
    numbers = (size, _each(stride, rank, size), _each(padding, rank), _each(dilation, rank))
    return [Sliding(*given) for given in zip(image, out, *numbers)]


def _adaptive(image: Sequence[Expr], out: Sequence[Expr]) -> list[Adaptive]:
    leave_if(any(not s.value for s in (*image, *out)), "the sizes of windows depend on symbols")
    return [Adaptive(i.value, o.value) for i, o in zip(image, out)]  # type: ignore[arg-type]  # checked above: both are numbers


def _elements(axes: Axes) -> int:
    return math.prod(axis.most for axis in axes)


def _values(x: Tensor, axes: Axes, at: Index, otherwise: float | None) -> Iterator[tuple[Index, Any]]:
    """The elements of a window, where they lie and what they are: `otherwise` outside of the image, or the nearest inside if that
    is None."""
    lead, windows = at[: len(at) - len(axes)], at[len(at) - len(axes) :]
    for numbers in itertools.product(*(range(axis.most) for axis in axes)):
        offsets = tuple(map(constant, numbers))
        if otherwise is None:
            place = (*lead, *(axis.nearest(w, o) for axis, w, o in zip(axes, windows, offsets)))
            yield place, x.at(place)
        else:
            place, tests = _place(axes, lead, windows, offsets)
            yield place, _read(x, place, tests, otherwise)


def _place(axes: Axes, lead: Index, windows: Index, offsets: Index) -> tuple[Index, list[Any]]:
    found = [axis.element(w, o) for axis, w, o in zip(axes, windows, offsets)]
    return (*lead, *(place for place, _ in found)), [test for _, tests in found for test in tests]


def _read(x: Tensor, place: Index, tests: list[Any], otherwise: Any) -> Any:
    if not tests:
        return x.at(place)
    return ops.masked(all_of(tests), lambda: x.at(place), number(otherwise, x.dtype))


def _at_hand(builder: Builder, x: Tensor, elements: int) -> Tensor:
    """What is pooled, stored if computing it for each window would cost too much."""
    costly = isinstance(x, Computed) and x.cost * elements > LARGEST_BODY
    return builder.store(x) if costly or elements > LARGEST_WINDOW else x


def _library(
    builder: Builder, out: Result | list[Result], x: Tensor, rest: tuple[Any, ...], options: dict[str, Any], reason: str
) -> Any:
    """A library call that keeps the order of its input."""
    leave_if(not builder.free_layout or not is_channels_last(x), reason)
    keep = [replace(r, strides=channels_last(r.sizes)) for r in (out if isinstance(out, list) else [out])]
    return builder.call(builder.usage.operator, (x, *rest), options, keep if isinstance(out, list) else keep[0])


def _totals(builder: Builder, out: Result, x: Tensor, axes: Axes) -> Computed:
    """The sums of windows, in the type computed with."""
    wide = replace(laid_like(builder, out, x), dtype=compute_dtype(out.dtype))
    uneven = not all(axis.even for axis in axes)
    if _elements(axes) > LARGEST_WINDOW or (uneven and is_channels_last(x)):
        sums = _reduced(builder, wide, x, axes, "sum", 0)
        return builder.compute(wide, sums.at, [sums])

    def element(at: Index) -> LoopValue:
        return functools.reduce(ops.add, (ops.to_dtype(value, wide.dtype) for _, value in _values(x, axes, at, 0)))

    return builder.compute(wide, element, [x], cost=4 * _elements(axes))


def _reduced(builder: Builder, out: Result, x: Tensor, axes: Axes, kind: str, otherwise: Any) -> Tensor:
    """A large window as a reduction of its elements."""
    rank = len(axes)

    def element(outer: Index, inner: Index) -> LoopValue:
        place, tests = _place(axes, outer[:-rank], outer[-rank:], inner)
        return ops.to_dtype(_read(x, place, tests, otherwise), out.dtype)

    over = tuple(constant(axis.most) for axis in axes)
    return builder.reduce(out, out.sizes, out.strides, over, kind, element)


@lower("avg_pool2d.default", rank=2)
@lower("avg_pool3d.default", rank=3)
def avg_pool(builder: Builder, out: Result, x: Tensor, *window: Any, rank: int, **options: Any) -> Tensor:
    kernel, stride, padding, _, include, divisor = _filled(window, [None, (), 0, False, True, None])
    if options or not out.dtype.is_floating_point:
        return _library(builder, out, x, window, options, "means of whole numbers")
    if rank == 3 and compute_dtype(out.dtype) is not out.dtype:
        raise LeftToLibrary("eager has no half precision here: the library raises the right error")
    require_supported(out.dtype)
    axes = _sliding(x.sizes[-rank:], out.sizes[-rank:], kernel, stride, padding)

    def divided(total: LoopValue, at: Index) -> LoopValue:
        return ops.div(total, number(_divisor(axes, at, divisor, include), total.dtype))

    return _means(builder, out, x, axes, divided, 4)


def _means(
    builder: Builder, out: Result, x: Tensor, axes: Axes, divided: Callable[[LoopValue, Index], LoopValue], cost: int
) -> Tensor:
    """The sums of windows, each divided by what its place says."""
    x = _at_hand(builder, x, _elements(axes))
    totals = _totals(builder, out, x, axes)
    element = lambda at: ops.to_dtype(divided(totals.at(at), at), out.dtype)  # noqa: E731
    return builder.compute(laid_like(builder, out, x), element, [totals], cost=cost)


def _divisor(axes: Sequence[Sliding], window: Index, divisor: Any, include: bool) -> Any:
    """What the sum of a window is divided by."""
    if divisor is not None:
        return divisor
    return math.prod(axis.count(w, padded=include) for axis, w in zip(axes, window[-len(axes) :]))


@lower("_adaptive_avg_pool2d.default", rank=2)
@lower("_adaptive_avg_pool3d.default", rank=3)
def adaptive_avg_pool(builder: Builder, out: Result, x: Tensor, size: Numbers, *, rank: int) -> Tensor:
    if not out.dtype.is_floating_point:
        return _library(builder, out, x, (size,), {}, "means of whole numbers")
    require_supported(out.dtype)
    axes = _adaptive(x.sizes[-rank:], out.sizes[-rank:])
    return _means(builder, out, x, axes, lambda total, at: _by_counts(axes, total, at), 4 * rank)


def _by_counts(axes: Sequence[Adaptive], value: LoopValue, at: Index) -> LoopValue:
    """A value of a window, divided by how many elements the window has along each axis."""
    for axis, window in zip(axes, at[-len(axes) :]):
        value = ops.div(value, number(axis.count(window), value.dtype))
    return value


@lower("max_pool2d_with_indices.default", rank=2)
@lower("max_pool3d_with_indices.default", rank=3)
def max_pool(builder: Builder, out: list[Result], x: Tensor, *window: Any, rank: int, **options: Any) -> Several:
    kernel, stride, padding, dilation, _ = _filled(window, [None, (), 0, 1, False])
    axes = _sliding(x.sizes[-rank:], out[0].sizes[-rank:], kernel, stride, padding, dilation)
    spread = any(axis.dilation != 1 for axis in axes) and any(axis.padding for axis in axes)
    if options or spread or not x.dtype.is_floating_point:
        return _library(builder, out, x, window, options, "a window spread over padding, or of integers")
    return _largest(builder, out, x, axes, lambda: window)


@lower("adaptive_max_pool2d.default", rank=2)
@lower("adaptive_max_pool3d.default", rank=3)
def adaptive_max_pool(builder: Builder, out: list[Result], x: Tensor, size: Numbers, *, rank: int) -> Several:
    leave_if(not x.dtype.is_floating_point, "maxima of whole numbers")
    return _largest(builder, out, x, _adaptive(x.sizes[-rank:], out[0].sizes[-rank:]), lambda: (size,))


def _largest(
    builder: Builder, out: list[Result], x: Tensor, axes: Axes, arguments: Callable[[], tuple[Any, ...]]
) -> Several:
    """The largest elements of windows, and where they lie in their image."""
    require_supported(x.dtype)
    dtype, elements = compute_dtype(x.dtype), _elements(axes)
    if elements > LARGEST_WINDOW:
        if 1 not in builder.usage.unread:
            return _library(builder, out, x, arguments(), {}, "the places of the largest elements of large windows")
        x = builder.store(x)
        if not is_channels_last(x):
            return [_one_by_one(builder, out[0], x, axes), None]
        result = laid_like(builder, out[0], x)
        top = _reduced(builder, replace(result, dtype=dtype), x, axes, "max", float("-inf"))
        return [builder.compute(result, lambda at: ops.to_dtype(top.at(at), result.dtype), [top]), None]
    x = _at_hand(builder, x, elements)
    image = x.sizes[len(x.sizes) - len(axes) :]
    nearest = is_channels_last(x)  # an element that is met twice is met in the same order

    def best(at: Index) -> tuple[LoopValue, LoopValue]:
        """The largest value and its place: the first of equals, the last that is no number."""
        first = [axis.first(w) for axis, w in zip(axes, at[len(at) - len(axes) :])]
        top, where = number(float("-inf"), dtype), ops.index(position(first, image), torch.int64)
        for place, value in _values(x, axes, at, None if nearest else float("-inf")):
            value = ops.to_dtype(value, dtype)
            newer = ops.bitwise_or(ops.gt(value, top), ops.isnan(value))
            top = ops.where(newer, value, top)
            where = ops.where(newer, ops.index(position(place[-len(axes) :], image), torch.int64), where)
        return top, where

    laid = [laid_like(builder, result, x) for result in out]
    return [
        builder.compute(laid[0], lambda at: ops.to_dtype(best(at)[0], out[0].dtype), [x], 6 * elements),
        builder.compute(laid[1], lambda at: best(at)[1], [x], 6 * elements),
    ]


def _one_by_one(builder: Builder, out: Result, x: Tensor, axes: Axes) -> Tensor:
    """The largest elements of large windows: along the last dimension, then of those along the one before, ..."""
    for d in reversed(range(len(axes))):
        dim = len(x.sizes) - len(axes) + d
        sizes = (*x.sizes[:dim], out.sizes[dim], *x.sizes[dim + 1 :])
        between = out if d == 0 else replace(out, sizes=sizes, strides=contiguous(sizes))
        x = builder.store(_largest_along(builder, between, x, axes[d], dim))
    return x


def _largest_along(builder: Builder, out: Result, x: Tensor, axis: Axis, dim: int) -> Tensor:
    dtype = compute_dtype(x.dtype)

    def element(at: Index) -> LoopValue:
        places = (axis.element(at[dim], constant(offset)) for offset in range(axis.most))
        values = (_read(x, (*at[:dim], p, *at[dim + 1 :]), tests, float("-inf")) for p, tests in places)
        return ops.to_dtype(functools.reduce(ops.maximum, (ops.to_dtype(v, dtype) for v in values)), out.dtype)

    return builder.compute(out, element, [x], cost=2 * axis.most)


def gathered(axes: Axes, at: Index, read: Callable[[Index], LoopValue], nothing: LoopValue) -> LoopValue:
    """The sum of what an element of the image gets from each window that holds it."""
    lead, image = at[: len(at) - len(axes)], at[len(at) - len(axes) :]
    values = []
    for numbers in itertools.product(*(range(axis.most_holding) for axis in axes)):
        found = [axis.holding(i, n) for axis, i, n in zip(axes, image, numbers)]
        window = (*lead, *(w for w, _ in found))
        tests = [test for _, several in found for test in several]
        here = functools.partial(read, window)
        values.append(ops.masked(all_of(tests), here, nothing) if tests else here())
    return functools.reduce(ops.add, values)


def few_holding(axes: Axes) -> int:
    """How many windows hold an element, if that is few enough to write out."""
    count = math.prod(axis.most_holding for axis in axes)
    leave_if(count > LARGEST_WINDOW, "windows that overlap much")
    return count


def _gradient(
    builder: Builder, out: Result, gradient: Tensor, axes: Axes, read: Callable[[Index], LoopValue]
) -> Computed:
    """A gradient by gathering; `read` is what one window gives, in the type computed with."""
    dtype, count = compute_dtype(out.dtype), few_holding(axes)

    def element(at: Index) -> LoopValue:
        return ops.to_dtype(gathered(axes, at, read, number(0, dtype)), out.dtype)

    return builder.compute(out, element, [gradient], cost=5 * count)


@lower("avg_pool2d_backward.default", rank=2)
@lower("avg_pool3d_backward.default", rank=3)
def avg_pool_backward(builder: Builder, out: Result, gradient: Tensor, x: Tensor, *window: Any, rank: int) -> Tensor:
    kernel, stride, padding, _, include, divisor = _filled(window, [None, (), 0, False, True, None])
    require_supported(out.dtype)
    axes = _sliding(x.sizes[-rank:], gradient.sizes[-rank:], kernel, stride, padding)
    if is_channels_last(x) and any(axis.most_holding > 1 for axis in axes):
        raise LeftToLibrary("windows that overlap, channels fastest: ATen's kernel is faster")
    given, dtype = builder.store(gradient), compute_dtype(out.dtype)

    def read(window: Index) -> LoopValue:
        count = number(_divisor(axes, window, divisor, include), dtype)
        return ops.div(ops.to_dtype(given.at(window), dtype), count)

    return _gradient(builder, out, given, axes, read)


@lower("_adaptive_avg_pool2d_backward.default", rank=2)
@lower("_adaptive_avg_pool3d_backward.default", rank=3)
def adaptive_avg_pool_backward(builder: Builder, out: Result, gradient: Tensor, x: Tensor, *, rank: int) -> Tensor:
    require_supported(out.dtype)
    axes = _adaptive(x.sizes[-rank:], gradient.sizes[-rank:])
    if not is_channels_last(x) or not all(axis.even for axis in axes):
        raise LeftToLibrary("only along channels, and in equal windows, is gathering faster than ATen's kernel")
    given, dtype = builder.store(gradient), compute_dtype(out.dtype)

    return _gradient(builder, out, given, axes, lambda at: _by_counts(axes, ops.to_dtype(given.at(at), dtype), at))
