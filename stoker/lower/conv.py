"""Convolutions, with channels fastest in memory where nobody outside sees it.

In an inference graph a tensor between two operators may have any strides. Convolution libraries work on channels-last memory
without reordering it, so a convolution asks for its input in that order, and operators behind it keep the order. Where the library adds
the bias by a kernel of its own, it is added by whoever reads the result; where it reorders weights by one, a faster one does. In training, a
convolution that a kernel of ours computes (`Target.convolves`) reads its input in that order, too, and its result lies as eager's.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch

from stoker import torch_private
from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import Sizes, contiguous
from stoker.loop.target import Target
from stoker.loop.view import Computed, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype
from stoker.lower.registry import LOWERINGS, Result, find, leave_if, lower
from stoker.shape.expr import constant


def channels_last(sizes: Sizes) -> Sizes:
    """Strides of an image whose channels are its fastest dimension."""
    n, *places, c = contiguous([sizes[0], *sizes[2:], sizes[1]])
    return n, c, *places


def is_channels_last(tensor: Tensor) -> bool:
    return len(tensor.sizes) == 4 and tensor.strides == channels_last(tensor.sizes)


def laid_like(builder: Builder, out: Result, x: Tensor) -> Result:
    """In the order of an image's memory, where strides are free."""
    return replace(out, strides=channels_last(out.sizes)) if builder.free_layout and is_channels_last(x) else out


def _reordered(builder: Builder, x: Tensor) -> Stored:
    """The tensor in memory with channels fastest; one that is not stored yet is stored so."""
    strides = channels_last(x.sizes)
    if isinstance(x, Stored):
        if x.strides == strides:
            return x
        x = builder.compute(Result(x.dtype, x.device, x.sizes, strides), x.at, [x])
    return builder.store(replace(x, strides=strides) if isinstance(x, Computed) else x)


@lower("convolution.default", calls=True)
def convolution(builder: Builder, out: Result, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    target, transposed = builder.target(out.device), rest[3]
    suited = out.dtype in target.image_dtypes
    apart = suited and bias is not None and target.adds_bias_apart and builder.usage.used_in_loops
    free = builder.free_layout or _is_ours(target, out, x, weight, rest[-1])
    turned = suited and free and not transposed and _is_image(target, out, x)
    leave_if(not apart and not turned, "a convolution")
    image = _reordered(builder, x) if turned else x
    result = replace(out, strides=channels_last(out.sizes)) if turned else out
    kernel = _reordered(builder, weight) if turned and target.orders_weights and _has_order(weight) else weight
    given = (image, kernel, None if apart else bias, *rest)
    made = (
        builder.call(find("convolution.default"), given, {}, result)
        if len(out.sizes) > 3 or not turned
        else _as_image(builder, result, *given)
    )
    if not builder.free_layout:
        result = out
    if not apart or bias is None:
        return made if result.strides == made.strides else builder.compute(result, made.at, [made])
    channels = bias  # of a type that is not None inside the function
    return builder.compute(result, lambda at: _with_bias(made.at(at), channels.at(at[1:2]), out.dtype), [made, bias])


def _is_ours(target: Target, out: Result, x: Tensor, weight: Tensor, groups: Any) -> bool:
    """Will a kernel of ours compute it (`stoker.schedule.epilogue`), which reads images with channels fastest and writes any order?"""
    known = all(size.value is not None for size in (*out.sizes, *x.sizes, *weight.sizes))
    return known and target.convolves(out.dtype, weight.sizes, groups)


def _has_order(weight: Tensor) -> bool:
    """Does it make a difference whether channels are fastest in a weight of images?"""
    _, channels, *window = weight.sizes
    return len(window) == 2 and channels.value != 1 and any(s.value != 1 for s in window)


def _is_image(target: Target, out: Result, x: Tensor) -> bool:
    """Are these tensors that the library convolves with channels fastest? With one channel or one place either order is the other."""
    return len(out.sizes) in target.image_ranks and (len(out.sizes) == 4 or all(s.value != 1 for s in x.sizes[1:]))


def _as_image(builder: Builder, out: Result, x: Stored, weight: Tensor, bias: Any, *rest: Any) -> Stored:
    """A convolution along a line, as one of images of a single row: the library turns lines round before it convolves them."""
    *numbers, groups = rest
    steps = [
        [*first, *given] if isinstance(given, (list, tuple)) else given
        for first, given in zip(([1], [0], [1], [], [0]), numbers)
    ]
    sizes = (*out.sizes[:2], constant(1), out.sizes[2])
    result = Result(out.dtype, out.device, sizes, channels_last(sizes))
    row, kernel = _in_a_row(x), _in_a_row(builder.store(weight))
    made = builder.call(find("convolution.default"), (row, kernel, bias, *steps, groups), {}, result)
    return replace(made, sizes=out.sizes, strides=out.strides)


def _in_a_row(line: Stored) -> Stored:
    """With a dimension of one row before the last."""
    a, b, c = line.sizes
    d, e, f = line.strides
    return replace(line, sizes=(a, b, constant(1), c), strides=(d, e, c * f, f))


def _with_bias(value: LoopValue, bias: LoopValue, dtype: torch.dtype) -> LoopValue:
    """As eager adds it, to what was rounded."""
    wide = compute_dtype(dtype)
    return ops.to_dtype(ops.add(ops.to_dtype(value, wide), ops.to_dtype(bias, wide)), dtype)


def packed(builder: Builder, out: Result, *given: Any, operator: Any, images: int) -> Tensor:
    """A convolution whose weight `stoker.passes.pack` has packed; so many of its arguments are images."""
    laid = [_reordered(builder, x) for x in given[:images]]
    return builder.call(operator, (*laid, *given[images:]), {}, replace(out, strides=channels_last(out.sizes)))


for _operator, _images in ((torch_private.PACKED_CONVOLUTION, 1), (torch_private.PACKED_CONVOLUTION_ADD, 2)):
    LOWERINGS[_operator] = functools.partial(packed, operator=_operator, images=_images)
