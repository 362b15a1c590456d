"""Convolutions. Their results are channels-last when an operand is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.meta import (
    Meta,
    Size,
    contiguous_strides,
    dense,
    formatted_strides,
    is_contiguous,
    meta_of,
    same,
    suggests_channels_last,
)
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor

Sizes = Sequence[Size]


def _each(values: Sizes, rank: int) -> Sizes:
    return values if len(values) == rank else tuple(values) * rank


def convolved_sizes(
    x: Sizes,
    weight: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    extra: Sizes,
    groups: Size,
) -> tuple[Size, ...]:
    """Batch, channels and space of the result."""
    rank = len(x) - 2
    stride, padding, dilation, extra = (_each(v, rank) for v in (stride, padding, dilation, extra))
    space: list[Size] = []
    for i in range(rank):
        reach = dilation[i] * (weight[i + 2] - 1)
        if transposed:
            space.append((x[i + 2] - 1) * stride[i] - 2 * padding[i] + reach + extra[i] + 1)
        else:
            space.append((x[i + 2] + 2 * padding[i] - reach - 1) // stride[i] + 1)
    decline_if(any(s <= 0 for s in space))
    return (x[0], weight[1] * groups if transposed else weight[0], *space)


def _check(x: Meta, weight: Meta, bias: FakeTensor | None, transposed: bool, groups: Size) -> None:
    decline_if(len(x.sizes) != len(weight.sizes) or len(x.sizes) not in (3, 4, 5) or x.dtype is not weight.dtype)
    inner = weight.sizes[0] if transposed else weight.sizes[1] * groups
    decline_if(x.sizes[1] != inner or x.device != weight.device or weight.sizes[0] % groups != 0)
    if bias is not None:
        count = weight.sizes[1] * groups if transposed else weight.sizes[0]
        decline_if(not same(bias.meta.sizes, (count,)) or bias.meta.dtype is not x.dtype)
    decline_if(any(s == 0 for s in (*x.sizes, *weight.sizes)))


def _as_image(operand: Meta, is_input: bool) -> tuple[Sizes, Sizes]:
    """Eager convolves one dimension of space as two, the first of one element, and makes the input contiguous for that."""
    sizes, strides = operand.sizes, operand.strides
    if len(sizes) != 3:
        return sizes, strides
    if is_input and not is_contiguous(sizes, strides):
        strides = contiguous_strides(sizes)
    return (*sizes[:2], 1, sizes[2]), (*strides[:2], sizes[2] * strides[2], strides[2])


def _strides(sizes: Sizes, channels_last: bool) -> tuple[Size, ...]:
    """Of a result: those of an image, without the dimension that was put in."""
    if len(sizes) != 3:
        return formatted_strides(sizes, channels_last)
    batch, channels, _, along = formatted_strides((*sizes[:2], 1, sizes[2]), channels_last)
    return batch, channels, along


def _channels_last(x: FakeTensor, weight: FakeTensor, *how: Any) -> bool:
    """Is the result? If an operand is; but for kernels of volumes that know one order alone, and cuDNN's in double precision."""
    found = any(suggests_channels_last(*_as_image(t.meta, is_input=t is x)) for t in (x, weight))
    if x.meta.device.type == "cuda" and x.meta.dtype is torch.float64:
        return False
    if not found or len(x.meta.sizes) < 5 or x.meta.device.type != "cpu":
        return found
    return not torch_private.convolution_kernel(x, weight, *how).startswith("Slow")


@rule("convolution", "_convolution", "convolution_overrideable")
def convolution(x: FakeTensor, weight: FakeTensor, bias: FakeTensor | None, *how: Any) -> Meta:
    """Channels-last input or weight gives a channels-last result."""
    (_, padding, dilation, transposed, _, groups), a, w = how[:6], x.meta, weight.meta
    _check(a, w, bias, transposed, groups)
    decline_if(any(d <= 0 for d in dilation) or any(p < 0 for p in padding))
    sizes = convolved_sizes(a.sizes, w.sizes, *how[:6])
    channels_last = _channels_last(x, weight, bias, *how[:6])
    return meta_of(a.dtype, sizes, _strides(sizes, channels_last), a.device)


@rule("convolution_backward")
def convolution_backward(
    grad: FakeTensor, x: FakeTensor, weight: FakeTensor, bias_sizes: Any, *how: Any
) -> tuple[Meta | None, ...]:
    """Gradients of input, weight and bias, in the format the forward used."""
    (*_, transposed, _, groups, mask), a, w = how, x.meta, weight.meta
    channels_last = _channels_last(x, weight, None, *how[:-1])
    channels = w.sizes[1] * groups if transposed else w.sizes[0]
    both = (meta_of(t.dtype, t.sizes, _strides(t.sizes, channels_last), t.device) for t in (a, w))
    return tuple(meta if want else None for want, meta in zip(mask, (*both, dense(w, (channels,)))))
