"""Pooling, padding and resizing of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import (
    Meta,
    Size,
    formatted_strides,
    like_strides,
    meta_of,
    same,
    suggests_channels_last,
    surely_same,
)
from stoker.fake.rule import Decline, rule
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


def _pooled(
    x: FakeTensor, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Size, ...]:
    m = x.meta
    if len(m.sizes) not in (rank + 1, rank + 2) or any(s == 0 for s in m.sizes[-rank - 1 :]):
        raise Decline
    kernels, paddings, dilations = _each(kernel, rank), _each(padding, rank), _each(dilation, rank)
    strides = _each(stride, rank) if stride else kernels
    if any(p < 0 or p * 2 > k for p, k in zip(paddings, kernels)):
        raise Decline
    space = tuple(
        _window_count(m.sizes[i - rank], kernels[i], strides[i], paddings[i], dilations[i], ceil_mode)
        for i in range(rank)
    )
    if any(s < 1 for s in space):
        raise Decline
    return (*m.sizes[:-rank], *space)


def _image(x: FakeTensor, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> Meta:
    """A result in x's memory format."""
    m = x.meta
    return meta_of(
        dtype or m.dtype, sizes, formatted_strides(sizes, suggests_channels_last(m.sizes, m.strides)), m.device
    )


@rule("im2col.default")
def im2col(x: FakeTensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Meta:
    """Each window as a column."""
    *batch, channels, _, _ = sizes = x.meta.sizes if len(x.meta.sizes) in (3, 4) else _decline()
    kernels, strides = _each(kernel_size, 2), _each(stride, 2)
    counts = [
        _window_count(size, k, s, p, d, False)
        for size, k, s, p, d in zip(sizes[-2:], kernels, strides, _each(padding, 2), _each(dilation, 2))
    ]
    if any(s < 1 for s in (*counts, *kernels, *strides, channels, *batch)):
        raise Decline
    columns = (*batch, channels * kernels[0] * kernels[1], counts[0] * counts[1])
    return meta_of(x.meta.dtype, columns, None, x.meta.device)


@rule("col2im.default")
def col2im(x: FakeTensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Meta:
    """Columns, each added where its window is. The number of columns must be that of the windows."""
    *batch, rows, columns = x.meta.sizes if len(x.meta.sizes) in (2, 3) else _decline()
    kernels, strides, space = _each(kernel_size, 2), _each(stride, 2), _each(output_size, 2)
    counts = [
        _window_count(size, k, s, p, d, False)
        for size, k, s, p, d in zip(space, kernels, strides, _each(padding, 2), _each(dilation, 2))
    ]
    if any(s < 1 for s in (*counts, *kernels, *strides, *batch)) or rows % (kernels[0] * kernels[1]) != 0:
        raise Decline
    if columns != counts[0] * counts[1]:
        raise Decline
    return meta_of(x.meta.dtype, (*batch, rows // (kernels[0] * kernels[1]), *space), None, x.meta.device)


def _decline() -> Any:
    raise Decline


@rule("max_pool2d_with_indices")
def max_pool2d(
    x: FakeTensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Meta, Meta]:
    """The largest of each window, and where it is."""
    sizes = _pooled(x, 2, kernel, stride, padding, dilation, ceil_mode)
    return _image(x, sizes), _image(x, sizes, torch.int64)


@rule("max_pool3d_with_indices")
def max_pool3d(
    x: FakeTensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Meta, Meta]:
    """The largest of each window, and where it is."""
    sizes = _pooled(x, 3, kernel, stride, padding, dilation, ceil_mode)
    return _image(x, sizes), _image(x, sizes, torch.int64)


@rule("avg_pool2d")
def avg_pool2d(
    x: FakeTensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Meta:
    """The mean of each window."""
    if divisor_override == 0:
        raise Decline
    return _image(x, _pooled(x, 2, kernel, stride, padding, 1, ceil_mode))


@rule("avg_pool3d")
def avg_pool3d(
    x: FakeTensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Meta:
    """The mean of each window."""
    if divisor_override == 0:
        raise Decline
    sizes = _pooled(x, 3, kernel, stride, padding, 1, ceil_mode)
    return meta_of(x.meta.dtype, sizes, formatted_strides(sizes, False), x.meta.device)


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(x: FakeTensor, output_size: Sequence[Size]) -> Meta:
    """Windows chosen so that the result has given sizes."""
    rank = len(output_size)
    if len(x.meta.sizes) not in (rank + 1, rank + 2) or any(s == 0 for s in x.meta.sizes[-rank - 1 :]):
        raise Decline
    sizes = (*x.meta.sizes[:-rank], *output_size)
    return _image(x, sizes) if rank == 2 else meta_of(x.meta.dtype, sizes, None, x.meta.device)


@rule("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: FakeTensor, output_size: Sequence[Size]) -> tuple[Meta, Meta]:
    """Largest elements and where they are."""
    rank = len(output_size)
    if len(x.meta.sizes) not in (rank + 1, rank + 2) or any(s == 0 for s in x.meta.sizes[-rank - 1 :]):
        raise Decline
    sizes = (*x.meta.sizes[:-rank], *output_size)
    if rank == 2:
        return _image(x, sizes), _image(x, sizes, torch.int64)
    return meta_of(x.meta.dtype, sizes, None, x.meta.device), meta_of(torch.int64, sizes, None, x.meta.device)


@rule(
    "max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward",
    "adaptive_max_pool2d_backward",
)  # fmt: skip
def pool_backward_2d(grad: FakeTensor, x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """Like the input, in its memory format."""
    return _image(x, x.meta.sizes)


@rule("avg_pool3d_backward", "_adaptive_avg_pool3d_backward", "adaptive_max_pool3d_backward")
def pool_backward_3d(grad: FakeTensor, x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """Like the input."""
    return meta_of(x.meta.dtype, x.meta.sizes, None, x.meta.device)


@rule("max_pool3d_with_indices_backward")
def max_pool_backward_3d(grad: FakeTensor, x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """Like the input, in its memory format."""
    return _image(x, x.meta.sizes)


@rule("max_unpool2d")
def max_unpool2d(x: FakeTensor, indices: FakeTensor, output_size: Sequence[Size]) -> Meta:
    """Zeros, and each element where its index says, in x's memory format."""
    m = x.meta
    fits = indices.meta.dtype is torch.int64 and len(output_size) == 2 and len(m.sizes) in (3, 4)
    if not fits or not same(m.sizes, indices.meta.sizes) or any(s == 0 for s in m.sizes[-3:]):
        raise Decline
    return _image(x, (*m.sizes[:-2], *output_size))


@rule("affine_grid_generator.default")
def affine_grid(theta: FakeTensor, size: Sequence[Size], align_corners: bool) -> Meta:
    """For each pixel of an image of this size, or voxel, the place it is taken from."""
    m = theta.meta
    rank = len(size) - 2
    if rank not in (2, 3) or not m.dtype.is_floating_point or not same(m.sizes, (size[0], rank, rank + 1)):
        raise Decline
    return meta_of(m.dtype, (size[0], *size[2:], rank), None, m.device)


@rule("constant_pad_nd")
def constant_pad(x: FakeTensor, pad: Sequence[Size], value: Any = 0) -> Meta:
    """Borders added, or removed where negative, from the last dimension on."""
    m = x.meta
    count = len(pad) // 2
    if len(pad) % 2 or count > len(m.sizes):
        raise Decline
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
    sizes = list(x.meta.sizes)
    if len(sizes) not in (rank + 1, rank + 2) or len(pad) != 2 * rank or any(s == 0 for s in sizes[-rank - 1 :]):
        raise Decline
    for i in range(rank):
        at = len(sizes) - 1 - i
        if reflects and (pad[2 * i] >= sizes[at] or pad[2 * i + 1] >= sizes[at]):
            raise Decline
        sizes[at] = sizes[at] + pad[2 * i] + pad[2 * i + 1]
        if sizes[at] < 1:
            raise Decline
    return tuple(sizes)


def _register_pads() -> None:
    for rank in (1, 2, 3):
        for name in ("reflection", "replication"):

            def forward(x: FakeTensor, padding: Any, rank: int = rank, reflects: bool = name == "reflection") -> Meta:
                sizes = _padded(x, padding, rank, reflects)
                m = x.meta
                image = suggests_channels_last(m.sizes, m.strides) and rank == 2 and m.device.type == "cpu"
                return meta_of(m.dtype, sizes, formatted_strides(sizes, image), m.device)

            def backward(grad: FakeTensor, x: FakeTensor, padding: Any, rank: int = rank) -> Meta:
                m = x.meta
                image = suggests_channels_last(m.sizes, m.strides) and rank == 2 and m.device.type == "cpu"
                return meta_of(m.dtype, m.sizes, formatted_strides(m.sizes, image), m.device)

            rule(f"{name}_pad{rank}d")(forward)
            rule(f"{name}_pad{rank}d_backward")(backward)


_register_pads()

_RESIZERS = {
    "upsample_nearest1d": 1, "_upsample_nearest_exact1d": 1, "upsample_linear1d": 1,
    "upsample_nearest2d": 2, "_upsample_nearest_exact2d": 2, "upsample_bilinear2d": 2, "upsample_bicubic2d": 2,
    "_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2,
    "upsample_nearest3d": 3, "_upsample_nearest_exact3d": 3, "upsample_trilinear3d": 3,
}  # fmt: skip


def _register_resizers() -> None:
    for name, rank in _RESIZERS.items():

        def forward(x: FakeTensor, output_size: Sequence[Size], *rest: Any, rank: int = rank, **others: Any) -> Meta:
            if len(x.meta.sizes) != rank + 2 or any(s == 0 for s in (*x.meta.sizes[1:], *output_size)):
                raise Decline
            return _image(x, (*x.meta.sizes[:2], *output_size))

        def backward(grad: FakeTensor, output_size: Any, input_size: Sequence[Size], *rest: Any, **others: Any) -> Meta:
            return _image(grad, tuple(input_size))

        rule(f"{name}.default")(forward)
        rule(f"{name}_backward.default")(backward)


_register_resizers()
