"""Pooling: windows over images. Small windows are written out element by element, so that they vectorize along the image (or along
its channels, where those are fastest) and fuse with what stands before and behind; others are library calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from stoker.loop.handler import ops
from stoker.loop.view import Computed, Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.conv import channels_last, is_channels_last
from stoker.lower.move import all_of, at_least, less
from stoker.lower.operand import compute_dtype, number, require_supported
from stoker.lower.registry import Decline, Result, find, lower
from stoker.shape.expr import Expr, constant, maximum, minimum

LARGEST_WINDOW = 16
"""Elements of a window that are written out."""
LARGEST_BODY = 80
"""Additions in a window beyond which what is pooled is stored first."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window per element of the result, over the last two dimensions."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def start(self, at: Index) -> tuple[Expr, Expr]:
        """Its first row and column, which may lie in the padding."""
        h, w = (i * s - p for i, s, p in zip(at[-2:], self.stride, self.padding))
        return h, w

    def places(self, at: Index, image: tuple[Expr, Expr], always_inside: bool) -> Iterator[tuple[Index, Any]]:
        """The index of each element, and the condition that it lies in the image (None if it always does)."""
        start = self.start(at)
        for offsets in itertools.product(*map(range, self.size)):
            place = tuple(s + o * d for s, o, d in zip(start, offsets, self.dilation))
            if always_inside:
                yield (*at[:-2], *place), None
                continue
            tests = [at_least(i, constant(0)) for i, p in zip(place, self.padding) if p]
            tests += [less(i, size) for i, size in zip(place, image)]
            yield (*at[:-2], *place), all_of(tests)

    def inside(self, image: tuple[Expr, Expr], out: tuple[Expr, Expr]) -> bool:
        """Do all windows lie within the image?"""
        if any(self.padding) or any(s.value is None for s in (*image, *out)):
            return False
        reach = ((o.value - 1) * s + (k - 1) * d for o, s, k, d in zip(out, self.stride, self.size, self.dilation))  # type: ignore[operator]
        return all(r < s.value for r, s in zip(reach, image))  # type: ignore[operator]


def _filled(given: Any, defaults: list[Any]) -> list[Any]:
    return [*given, *defaults[len(given) :]]


def _pair(value: Any, default: tuple[int, int] | None = None) -> tuple[int, int]:
    given = [value] if isinstance(value, int) else list(value)
    if not given and default is not None:
        return default
    if not all(isinstance(v, int) for v in given):
        raise Decline("the window's size depends on symbols")
    return (given[0], given[-1])


def _pooled(builder: Builder, x: Tensor, window: Window) -> Tensor:
    elements = window.size[0] * window.size[1]
    if elements > LARGEST_WINDOW:
        raise Decline("a large window")
    if isinstance(x, Computed) and x.cost * elements > LARGEST_BODY:
        return builder.store(x)
    return x


def _laid(builder: Builder, out: Result, x: Tensor) -> Result:
    """In the order of the input's memory, where strides are free."""
    return replace(out, strides=channels_last(out.sizes)) if builder.free_layout and is_channels_last(x) else out


def _library(builder: Builder, out: Any, x: Tensor, rest: Any, options: Any) -> Any:
    """A library call that keeps the order of its input."""
    if not builder.free_layout or not is_channels_last(x):
        raise Decline("a library call")
    name = builder.origin.removeprefix("aten.")
    keep = [replace(r, strides=channels_last(r.sizes)) for r in (out if isinstance(out, list) else [out])]
    return builder.call(find(name), (x, *rest), options, keep if isinstance(out, list) else keep[0])


@lower("avg_pool2d.default")
def avg_pool(
    builder: Builder, out: Result, x: Tensor, kernel: Any, stride: Any = (), *rest: Any, **options: Any
) -> Any:
    padding, ceil, include, divisor = _filled(rest, [0, False, True, None])
    size = _pair(kernel)
    window = Window(size, _pair(stride, size), _pair(padding))
    if options or ceil or not out.dtype.is_floating_point or size[0] * size[1] > LARGEST_WINDOW:
        return _library(builder, out, x, (kernel, stride, *rest), options)
    require_supported(out.dtype)
    x = _pooled(builder, x, window)
    image, dtype = (x.sizes[-2], x.sizes[-1]), compute_dtype(out.dtype)
    always = window.inside(image, (out.sizes[-2], out.sizes[-1]))
    whole = divisor if divisor is not None else size[0] * size[1]
    counted = divisor is None and not include and any(window.padding)

    def element(at: Index) -> Any:
        total = None
        for place, condition in window.places(at, image, always):
            value = ops.to_dtype(_read(x, place, condition, 0), dtype)
            total = value if total is None else ops.add(total, value)
        count = _inside_count(window, at, image) if counted else whole
        return ops.to_dtype(ops.div(total, number(count, dtype)), out.dtype)

    return builder.compute(_laid(builder, out, x), element, [x], cost=4 * size[0] * size[1])


def _read(x: Tensor, place: Index, condition: Any, otherwise: Any) -> Any:
    if condition is None:
        return x.at(place)
    return ops.masked(condition, lambda: x.at(place), number(otherwise, x.dtype))


def _inside_count(window: Window, at: Index, image: tuple[Expr, Expr]) -> Expr:
    total = constant(1)
    for start, size, end in zip(window.start(at), window.size, image):
        total = total * (minimum(start + size, end) - maximum(start, constant(0)))
    return total


@lower("max_pool2d_with_indices.default")
def max_pool(
    builder: Builder, out: list[Result], x: Tensor, kernel: Any, stride: Any = (), *rest: Any, **options: Any
) -> Any:
    padding, dilation, _ = _filled(rest, [0, 1, False])
    size = _pair(kernel)
    window = Window(size, _pair(stride, size), _pair(padding), _pair(dilation))
    spread = any(d != 1 for d in window.dilation) and any(window.padding)
    if options or spread or not x.dtype.is_floating_point or size[0] * size[1] > LARGEST_WINDOW:
        return _library(builder, out, x, (kernel, stride, *rest), options)
    require_supported(x.dtype)
    x = _pooled(builder, x, window)
    image = (x.sizes[-2], x.sizes[-1])
    always = window.inside(image, (out[0].sizes[-2], out[0].sizes[-1]))

    def best(at: Index) -> tuple[Any, Any]:
        """The largest value, and where it lies in its image: the first of equals, the last that is no number."""
        dtype = compute_dtype(x.dtype)
        first = tuple(maximum(s, constant(0)) for s in window.start(at))
        top, where = number(float("-inf"), dtype), ops.index(first[0] * image[1] + first[1], torch.int64)
        for place, condition in window.places(at, image, always):
            value = ops.to_dtype(_read(x, place, condition, float("-inf")), dtype)
            newer = ops.bitwise_or(ops.gt(value, top), ops.isnan(value))
            top = ops.where(newer, value, top)
            where = ops.where(newer, ops.index(place[-2] * image[1] + place[-1], torch.int64), where)
        return top, where

    cost = 6 * size[0] * size[1]
    return [
        builder.compute(_laid(builder, out[0], x), lambda at: ops.to_dtype(best(at)[0], out[0].dtype), [x], cost),
        builder.compute(_laid(builder, out[1], x), lambda at: best(at)[1], [x], cost),
    ]


@lower("_adaptive_avg_pool2d.default")
def adaptive_avg_pool(builder: Builder, out: Result, x: Tensor, size: Any) -> Any:
    """Where the image is a multiple of the result, the windows are equal and do not overlap."""
    sizes = [(i.value, o.value) for i, o in zip(x.sizes[-2:], out.sizes[-2:])]
    if any(not i or not o or i % o for i, o in sizes) or not out.dtype.is_floating_point:
        return _library(builder, out, x, (size,), {})
    window = Window(*((sizes[0][0] // sizes[0][1], sizes[1][0] // sizes[1][1]),) * 2)  # type: ignore[operator, arg-type]
    if window.size[0] * window.size[1] > LARGEST_WINDOW:
        return _library(builder, out, x, (size,), {})
    x = _pooled(builder, x, window)
    dtype = compute_dtype(out.dtype)

    def element(at: Index) -> Any:
        total = None
        for place, _ in window.places(at, (x.sizes[-2], x.sizes[-1]), always_inside=True):
            value = ops.to_dtype(x.at(place), dtype)
            total = value if total is None else ops.add(total, value)
        mean = ops.div(ops.div(total, number(window.size[0], dtype)), number(window.size[1], dtype))
        return ops.to_dtype(mean, out.dtype)

    return builder.compute(_laid(builder, out, x), element, [x], cost=2 * window.size[0] * window.size[1])
