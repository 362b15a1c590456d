"""Pooling, padding and resizing of images and volumes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.fake.meta import (
    Meta,
    Size,
    dense,
    formatted_strides,
    in_format,
    like_strides,
    meta_of,
    same,
    suggests_channels_last,
    surely_same,
)
from stoker.fake.rule import Decline, decline_if, rule
from stoker.fake.tensor import FakeTensor


def _each(values: Any, rank: int) -> list[Size]:
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    return values if len(values) == rank else values * rank


def _window_count(size: Size, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: bool) -> Size:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    count = (span + stride - 1) // stride + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def _with_space(x: FakeTensor, rank: int) -> Meta:
    """The metadata of an image of so many dimensions, in a batch or alone, which has pixels."""
    decline_if(len(x.meta.sizes) not in (rank + 1, rank + 2) or any(s == 0 for s in x.meta.sizes[-rank - 1 :]))
    return x.meta


def _pooled(
    x: FakeTensor, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Size, ...]:
    m = _with_space(x, rank)
    kernels, paddings, dilations = _each(kernel, rank), _each(padding, rank), _each(dilation, rank)
    strides = _each(stride, rank) if stride else kernels
    decline_if(any(p < 0 or p * 2 > k for p, k in zip(paddings, kernels)))
    space = tuple(
        _window_count(m.sizes[i - rank], kernels[i], strides[i], paddings[i], dilations[i], ceil_mode)
        for i in range(rank)
    )
    decline_if(any(s < 1 for s in space))
    return (*m.sizes[:-rank], *space)


def _windows(space: Sequence[Size], *numbers: Any) -> tuple[list[Size], list[Size], list[Size]]:
    """Of kernel, dilation, padding and stride: the first and the last for each dimension, and how many windows there are."""
    kernels, dilations, paddings, strides = (_each(given, 2) for given in numbers)
    found = zip(space, kernels, strides, paddings, dilations)
    return kernels, strides, [_window_count(*given, False) for given in found]


@rule("im2col.default")
def im2col(x: FakeTensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Meta:
    decline_if(len(x.meta.sizes) not in (3, 4))
    *batch, channels, _, _ = sizes = x.meta.sizes
    kernels, strides, counts = _windows(sizes[-2:], kernel_size, dilation, padding, stride)
    decline_if(any(s < 1 for s in (*counts, *kernels, *strides, channels, *batch)))
    return dense(x.meta, (*batch, channels * kernels[0] * kernels[1], counts[0] * counts[1]))


@rule("col2im.default")
def col2im(x: FakeTensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Meta:
    """Columns, each added where its window is. The number of columns must be that of the windows."""
    decline_if(len(x.meta.sizes) not in (2, 3))
    (*batch, rows, columns), space = x.meta.sizes, _each(output_size, 2)
    kernels, strides, counts = _windows(space, kernel_size, dilation, padding, stride)
    decline_if(any(s < 1 for s in (*counts, *kernels, *strides, *batch)) or rows % (kernels[0] * kernels[1]) != 0)
    decline_if(columns != counts[0] * counts[1])
    return dense(x.meta, (*batch, rows // (kernels[0] * kernels[1]), *space))


def _adapted(x: FakeTensor, size: Sequence[Size], rank: int) -> tuple[Size, ...]:
    """Windows are chosen so that the result has given sizes."""
    decline_if(len(size) != rank)
    return (*_with_space(x, rank).sizes[:-rank], *size)


def _largest(
    rank: int,
    x: FakeTensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Meta, Meta]:
    sizes = _pooled(x, rank, kernel, stride, padding, dilation, ceil_mode)
    return in_format(x.meta, sizes), in_format(x.meta, sizes, torch.int64)


def _mean(
    rank: int,
    x: FakeTensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Meta:
    decline_if(divisor_override == 0)
    return _LAID[rank](x.meta, _pooled(x, rank, kernel, stride, padding, 1, ceil_mode))


def _adaptive_mean(rank: int, x: FakeTensor, output_size: Sequence[Size]) -> Meta:
    return _LAID[rank](x.meta, _adapted(x, output_size, rank))


def _adaptive_largest(rank: int, x: FakeTensor, output_size: Sequence[Size]) -> tuple[Meta, Meta]:
    sizes = _adapted(x, output_size, rank)
    return _LAID[rank](x.meta, sizes), _LAID[rank](x.meta, sizes, torch.int64)


_LAID: dict[int, Callable[..., Meta]] = {2: in_format, 3: dense}
"""Of volumes, most kernels know one order alone."""
for _rank in _LAID:
    rule(f"max_pool{_rank}d_with_indices")(functools.partial(_largest, _rank))
    rule(f"avg_pool{_rank}d")(functools.partial(_mean, _rank))
    rule(f"_adaptive_avg_pool{_rank}d")(functools.partial(_adaptive_mean, _rank))
    rule(f"adaptive_max_pool{_rank}d")(functools.partial(_adaptive_largest, _rank))


@rule("max_unpool2d")
def max_unpool2d(x: FakeTensor, indices: FakeTensor, output_size: Sequence[Size]) -> Meta:
    """Zeros, and each element where its index says, in x's memory format."""
    m = x.meta
    fits = indices.meta.dtype is torch.int64 and len(output_size) == 2 and len(m.sizes) in (3, 4)
    decline_if(not fits or not same(m.sizes, indices.meta.sizes) or any(s == 0 for s in m.sizes[-3:]))
    return in_format(x.meta, (*m.sizes[:-2], *output_size))


@rule("affine_grid_generator.default")
def affine_grid(theta: FakeTensor, size: Sequence[Size], align_corners: bool) -> Meta:
    """For each pixel of an image of this size, or voxel, the place it is taken from."""
    m = theta.meta
    rank = len(size) - 2
    decline_if(rank not in (2, 3) or not m.dtype.is_floating_point or not same(m.sizes, (size[0], rank, rank + 1)))
    return dense(m, (size[0], *size[2:], rank))


@rule("constant_pad_nd")
def constant_pad(x: FakeTensor, pad: Sequence[Size], value: Any = 0) -> Meta:
    """Borders added, or removed where negative, from the last dimension on."""
    m = x.meta
    count = len(pad) // 2
    decline_if(len(pad) % 2 or count > len(m.sizes))
    sizes = list(m.sizes)
    for i in range(count):
        at = len(sizes) - 1 - i
        left = sizes[at]
        for border in pad[2 * i : 2 * i + 2]:
            left = left + torch.sym_min(border, 0)
            if left < 0:  # what is removed must be there, whatever is added at the other side
                raise Decline
        sizes[at] = sizes[at] + pad[2 * i] + pad[2 * i + 1]
    strides = formatted_strides(sizes, suggests_channels_last(m.sizes, m.strides))
    if not any(type(border) is int and border > 0 for border in pad):
        smaller = like_strides(tuple(sizes), m.strides)
        strides = smaller if not surely_same(strides, smaller) and all(border <= 0 for border in pad) else strides
    return meta_of(m.dtype, sizes, strides, m.device)


def _padded(x: FakeTensor, pad: Sequence[Size], rank: int, reflects: bool) -> tuple[Size, ...]:
    sizes = list(_with_space(x, rank).sizes)
    decline_if(len(pad) != 2 * rank)
    for i in range(rank):
        at = len(sizes) - 1 - i
        decline_if(reflects and (pad[2 * i] >= sizes[at] or pad[2 * i + 1] >= sizes[at]))
        sizes[at] = sizes[at] + pad[2 * i] + pad[2 * i + 1]
        decline_if(sizes[at] < 1)
    return tuple(sizes)


def _bordered(x: FakeTensor, rank: int, sizes: tuple[Size, ...]) -> Meta:
    """Images keep their memory format on the processor."""
    return (in_format if rank == 2 and x.meta.device.type == "cpu" else dense)(x.meta, sizes)


def _register_pads(rank: int, name: str) -> None:
    def forward(x: FakeTensor, padding: Any) -> Meta:
        return _bordered(x, rank, _padded(x, padding, rank, name == "reflection"))

    def backward(grad: FakeTensor, x: FakeTensor, padding: Any) -> Meta:
        return _bordered(x, rank, x.meta.sizes)

    rule(f"{name}_pad{rank}d")(forward)
    rule(f"{name}_pad{rank}d_backward")(backward)


for _rank in (1, 2, 3):
    for _name in ("reflection", "replication"):
        _register_pads(_rank, _name)

_RESIZERS = {
    1: "upsample_nearest1d _upsample_nearest_exact1d upsample_linear1d",
    2: """
    upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    """,
    3: "upsample_nearest3d _upsample_nearest_exact3d upsample_trilinear3d",
}


def _resized(rank: int, x: FakeTensor, output_size: Sequence[Size], *rest: Any, **others: Any) -> Meta:
    decline_if(len(x.meta.sizes) != rank + 2 or any(s == 0 for s in (*x.meta.sizes[1:], *output_size)))
    return in_format(x.meta, (*x.meta.sizes[:2], *output_size))


def _resized_backward(
    grad: FakeTensor, output_size: Any, input_size: Sequence[Size], *rest: Any, **others: Any
) -> Meta:
    return in_format(grad.meta, tuple(input_size))


for _rank, _names in _RESIZERS.items():
    for _name in _names.split():
        rule(f"{_name}.default")(functools.partial(_resized, _rank))
        rule(f"{_name}_backward.default")(_resized_backward)


_DENSELY = "upsample_bicubic2d _upsample_bicubic2d_aa upsample_nearest3d _upsample_nearest_exact3d"


@rule(*(f"{name}_backward.default" for name in _DENSELY.split()))
def resized_densely(grad: FakeTensor, output_size: Any, input_size: Sequence[Size], *rest: Any, **others: Any) -> Meta:
    """Contiguous on a processor, whatever came in."""
    return dense(grad.meta, input_size) if grad.meta.device.type == "cpu" else in_format(grad.meta, tuple(input_size))
