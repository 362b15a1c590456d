"""Convolutions, with channels fastest in memory where nobody outside sees it.

In an inference graph a tensor between two operators may have any strides. Convolution libraries work on channels-last memory
without reordering it, so a convolution asks for its input in that order, and operators behind it keep the order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker import torch_private
from stoker.loop.layout import Sizes, contiguous
from stoker.loop.view import Computed, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.registry import LOWERINGS, LeftToLibrary, Result, find, lower

_ORDER = (0, 2, 3, 1)


def channels_last(sizes: Sizes) -> Sizes:
    """Strides of an image whose channels are its fastest dimension."""
    n, h, w, c = contiguous([sizes[d] for d in _ORDER])
    return n, c, h, w


def is_channels_last(tensor: Tensor) -> bool:
    return len(tensor.sizes) == 4 and tensor.strides == channels_last(tensor.sizes)


def _reordered(builder: Builder, x: Tensor) -> Stored:
    """The tensor in memory with channels fastest; one that is not stored yet is stored so."""
    strides = channels_last(x.sizes)
    if isinstance(x, Stored):
        if x.strides == strides:
            return x
        x = builder.compute(Result(x.dtype, x.device, x.sizes, strides), x.at, [x])
    return builder.store(replace(x, strides=strides) if isinstance(x, Computed) else x)


@lower("convolution.default", calls=True)
def convolution(builder: Builder, out: Result, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    transposed = rest[4]
    suited = out.dtype in builder.target(out.device).image_dtypes
    if not builder.free_layout or transposed or len(out.sizes) != 4 or not suited:
        raise LeftToLibrary("a convolution")
    image = _reordered(builder, x)
    result = replace(out, strides=channels_last(out.sizes))
    return builder.call(find("convolution.default"), (image, weight, *rest), {}, result)


def packed_convolution(builder: Builder, out: Result, x: Tensor, *rest: Any) -> Tensor:
    """A convolution whose weight `stoker.passes.pack` has packed."""
    return _packed(builder, out, torch_private.PACKED_CONVOLUTION, (_reordered(builder, x), *rest))


def packed_convolution_add(builder: Builder, out: Result, x: Tensor, other: Tensor, *rest: Any) -> Tensor:
    images = (_reordered(builder, x), _reordered(builder, other))
    return _packed(builder, out, torch_private.PACKED_CONVOLUTION_ADD, (*images, *rest))


def _packed(builder: Builder, out: Result, operator: Any, arguments: tuple[Any, ...]) -> Tensor:
    return builder.call(operator, arguments, {}, replace(out, strides=channels_last(out.sizes)))


LOWERINGS[torch_private.PACKED_CONVOLUTION] = packed_convolution
LOWERINGS[torch_private.PACKED_CONVOLUTION_ADD] = packed_convolution_add
