"""Convolutions. Their results are channels-last when an operand is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.meta import Meta, Size, formatted_strides, meta_of, same, suggests_channels_last
from stoker.fake.rule import Decline, rule
from stoker.fake.tensor import FakeTensor


def _each(values: Sequence[Size], rank: int) -> Sequence[Size]:
    return values if len(values) == rank else tuple(values) * rank


def convolved_sizes(
    x: Sequence[Size],
    weight: Sequence[Size],
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> tuple[Size, ...]:
    """Batch, channels and space of the result."""
    rank = len(x) - 2
    stride, padding, dilation, extra = (_each(v, rank) for v in (stride, padding, dilation, output_padding))
    space: list[Size] = []
    for i in range(rank):
        reach = dilation[i] * (weight[i + 2] - 1)
        if transposed:
            space.append((x[i + 2] - 1) * stride[i] - 2 * padding[i] + reach + extra[i] + 1)
        else:
            space.append((x[i + 2] + 2 * padding[i] - reach - 1) // stride[i] + 1)
    if any(s <= 0 for s in space):
        raise Decline
    return (x[0], weight[1] * groups if transposed else weight[0], *space)


def _check(x: Meta, weight: Meta, bias: FakeTensor | None, transposed: bool, groups: Size) -> None:
    if len(x.sizes) != len(weight.sizes) or len(x.sizes) not in (3, 4, 5) or x.dtype is not weight.dtype:
        raise Decline
    inner = weight.sizes[0] if transposed else weight.sizes[1] * groups
    if x.sizes[1] != inner or x.device != weight.device or weight.sizes[0] % groups != 0:
        raise Decline
    if bias is not None:
        count = weight.sizes[1] * groups if transposed else weight.sizes[0]
        if not same(bias.meta.sizes, (count,)) or bias.meta.dtype is not x.dtype:
            raise Decline
    if any(s == 0 for s in (*x.sizes, *weight.sizes)):
        raise Decline


def _channels_last(x: FakeTensor, weight: FakeTensor, *how: Any) -> bool:
    """Is the result? If an operand is; but for kernels of volumes that know one order alone, and cuDNN's in double precision."""
    found = any(suggests_channels_last(t.meta.sizes, t.meta.strides) for t in (x, weight))
    if x.meta.device.type == "cuda" and x.meta.dtype is torch.float64:
        return False
    if not found or len(x.meta.sizes) < 5 or x.meta.device.type != "cpu":
        return found
    return not torch_private.convolution_kernel(x, weight, *how).startswith("Slow")


@rule("convolution", "_convolution", "convolution_overrideable")
def convolution(
    x: FakeTensor,
    weight: FakeTensor,
    bias: FakeTensor | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    *flags: Any,
) -> Meta:
    """Channels-last input or weight gives a channels-last result."""
    a, w = x.meta, weight.meta
    _check(a, w, bias, transposed, groups)
    if any(d <= 0 for d in dilation) or any(p < 0 for p in padding):
        raise Decline
    sizes = convolved_sizes(a.sizes, w.sizes, stride, padding, dilation, transposed, output_padding, groups)
    channels_last = _channels_last(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return meta_of(a.dtype, sizes, formatted_strides(sizes, channels_last), a.device)


@rule("convolution_backward")
def convolution_backward(
    grad: FakeTensor,
    x: FakeTensor,
    weight: FakeTensor,
    bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    output_mask: Sequence[bool],
) -> tuple[Meta | None, Meta | None, Meta | None]:
    """Gradients of input, weight and bias, in the format the forward used."""
    a, w = x.meta, weight.meta
    channels_last = _channels_last(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    channels = w.sizes[1] * groups if transposed else w.sizes[0]
    return (
        meta_of(a.dtype, a.sizes, formatted_strides(a.sizes, channels_last), a.device) if output_mask[0] else None,
        meta_of(w.dtype, w.sizes, formatted_strides(w.sizes, channels_last), w.device) if output_mask[1] else None,
        meta_of(w.dtype, (channels,), None, w.device) if output_mask[2] else None,
    )
