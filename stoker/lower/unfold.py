"""Windows as a dimension of their own, and back: `unfold` along one dimension, `im2col` and `col2im` over images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Index, Stored, Tensor, view
from stoker.lower.axis import Sliding
from stoker.lower.builder import Builder
from stoker.lower.move import all_of, at_least, less
from stoker.lower.operand import compute_dtype, number, require_supported
from stoker.lower.registry import Numbers, Result, Size, leave_if, lower
from stoker.lower.view import dimension
from stoker.lower.window import LARGEST_WINDOW, few_holding, gathered
from stoker.shape.expr import constant


@lower("unfold.default")
def unfold(builder: Builder, out: Result, x: Tensor, dim: int, size: Size, step: Size) -> Tensor:
    """A view: windows in the place of the dimension, their elements in a last one."""
    leave_if(not x.sizes, "a tensor without dimensions")
    dim = dimension(dim, len(x.sizes))
    stored = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    strides = stored if isinstance(x, Stored) else out.strides
    return view(x, out.sizes, strides, lambda at: (*at[:dim], at[dim] * step + at[-1], *at[dim + 1 : -1]))


@lower("unfold_backward.default")
def unfold_backward(
    builder: Builder, out: Result, gradient: Tensor, sizes: Sequence[Size], dim: int, size: int, step: int
) -> Tensor:
    """Each element gathers from the windows that hold it."""
    require_supported(out.dtype)
    leave_if(not out.sizes, "a tensor without dimensions")
    dim = dimension(dim, len(out.sizes))
    axis, dtype = Sliding(out.sizes[dim], gradient.sizes[dim], size, step), compute_dtype(out.dtype)
    leave_if(axis.most_holding > LARGEST_WINDOW, "windows that overlap much")
    given = builder.store(gradient)

    def element(at: Index) -> LoopValue:
        total = number(0, dtype)
        for number_ in range(axis.most_holding):
            window, tests = axis.holding(at[dim], number_)
            offset = at[dim] - window * step
            place = (*at[:dim], window, *at[dim + 1 :], offset)
            zero = number(0, given.dtype)
            here = functools.partial(given.at, place)
            value = ops.masked(all_of(tests), here, zero) if tests else here()
            total = ops.add(total, ops.to_dtype(value, dtype))
        return ops.to_dtype(total, out.dtype)

    return builder.compute(out, element, [given], cost=5 * axis.most_holding)


def _pairs(*values: Any) -> list[list[int]]:
    """Kernel, dilation, padding and stride, each for both dimensions."""
    found = [[v, v] if isinstance(v, int) else list(v) for v in values]
    leave_if(not all(isinstance(n, int) for pair in found for n in pair), "the window's size depends on symbols")
    return [pair * 2 if len(pair) == 1 else pair for pair in found]


@lower("im2col.default")
def im2col(builder: Builder, out: Result, x: Tensor, *window: Numbers) -> Tensor:
    """Columns of windows: [..., channel x row x column of the window, window]."""
    require_supported(x.dtype)
    size, spread, before, step = _pairs(*window)
    across = (x.sizes[-1] + 2 * before[1] - spread[1] * (size[1] - 1) - 1) // step[1] + 1

    def element(at: Index) -> LoopValue:
        *lead, part, window = at
        inside = (part // size[1] % size[0], part % size[1])
        where = (window // across, window % across)
        h, w = (o * s - p + i * d for o, s, p, i, d in zip(where, step, before, inside, spread))
        place = (*lead, part // (size[0] * size[1]), h, w)
        if not any(before):
            return x.at(place)
        tests = [at_least(h, constant(0)), less(h, x.sizes[-2]), at_least(w, constant(0)), less(w, x.sizes[-1])]
        return ops.masked(all_of(tests), lambda: x.at(place), number(0, x.dtype))

    return builder.compute(out, element, [x], cost=8)


@lower("col2im.default")
def col2im(builder: Builder, out: Result, x: Tensor, sizes: Any, *window: Numbers) -> Tensor:
    """The sum of what windows hold of each element."""
    require_supported(x.dtype)
    size, spread, before, step = _pairs(*window)
    leave_if(not out.dtype.is_floating_point, "windows of whole numbers")
    ends = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(out.sizes[-2:], before, spread, size, step)]
    leave_if(any(d != 1 for d in spread), "windows that are spread")
    axes = [Sliding(*given) for given in zip(out.sizes[-2:], ends, size, step, before)]
    columns, dtype = builder.store(x), compute_dtype(out.dtype)

    def element(at: Index) -> LoopValue:
        *lead, channel, h, w = at

        def read(window: Index) -> LoopValue:
            i, j = (p + axis.padding - o * axis.stride for p, axis, o in zip((h, w), axes, window[-2:]))
            place = (*lead, (channel * size[0] + i) * size[1] + j, window[-2] * ends[1] + window[-1])
            return ops.to_dtype(columns.at(place), dtype)

        return ops.to_dtype(gathered(axes, at, read, number(0, dtype)), out.dtype)

    return builder.compute(out, element, [columns], cost=8 * few_holding(axes))
