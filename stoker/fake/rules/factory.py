"""Tensors from nothing, or like others: sizes come from arguments, types from arguments or the default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import (
    Meta,
    Size,
    channels_last_strides,
    contiguous_strides,
    dense,
    like_strides,
    meta_of,
    strides_in_order,
)
from stoker.fake.promote import broadcast, common_device, complex_of, number_dtype
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor


def resolve_device(device: Any) -> torch.device:
    """A device as tensors report it: an accelerator has an index."""
    device = torch.device("cpu") if device is None else torch.device(device)
    if device.type in ("cuda", "xpu", "mps") and device.index is None:
        return torch.device(device.type, 0 if device.type == "mps" else torch.accelerator.current_device_index())
    return device


def copied_strides(x: FakeTensor, memory_format: Any) -> tuple[Any, ...]:
    """The strides of a clone or an empty_like in a memory format; None preserves."""
    m = x.meta
    if memory_format in (None, torch.preserve_format):
        return like_strides(m.sizes, m.strides)
    if memory_format is torch.contiguous_format:
        return contiguous_strides(m.sizes)
    rank = 4 if memory_format is torch.channels_last else 5
    decline_if(len(m.sizes) != rank)
    return channels_last_strides(m.sizes)


def fresh(
    size: Sequence[Size], dtype: torch.dtype | None = None, *, device: Any = None, layout: Any = None, **others: Any
) -> Meta:
    """A contiguous tensor."""
    decline_if(layout not in (None, torch.strided) or any(type(s) is int and s < 0 for s in size))
    return meta_of(dtype or torch.get_default_dtype(), size, None, resolve_device(device))


rule("zeros.default", "ones.default", "rand.default", "randn.default", "rand.generator", "randn.generator")(fresh)


@rule("empty.memory_format")
def empty(size: Sequence[Size], *, memory_format: Any = None, **options: Any) -> Meta:
    meta = fresh(size, **options)
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        decline_if(len(size) != (4 if memory_format is torch.channels_last else 5))
        return meta_of(meta.dtype, size, channels_last_strides(size), meta.device)
    return meta


@rule("full.default")
def full(size: Sequence[Size], fill_value: Any, *, dtype: Any = None, **options: Any) -> Meta:
    """The value decides the type unless one is given."""
    return fresh(size, dtype or number_dtype(fill_value), **options)


@rule("scalar_tensor")
def scalar_tensor(value: Any, **options: Any) -> Meta:
    """Of the default type."""
    return fresh((), **options)


@rule("randint.default", "randint.generator")
def randint(high: Any, size: Sequence[Size], *args: Any, dtype: Any = None, **options: Any) -> Meta:
    return fresh(size, dtype or torch.int64, **options)


@rule("randint.low", "randint.low_generator")
def randint_low(low: Any, high: Any, size: Sequence[Size], *args: Any, dtype: Any = None, **options: Any) -> Meta:
    return fresh(size, dtype or torch.int64, **options)


@rule("randperm.default", "randperm.generator")
def randperm(n: Size, *args: Any, dtype: Any = None, **options: Any) -> Meta:
    return fresh((n,), dtype or torch.int64, **options)


@rule("empty_strided")
def empty_strided(size: Sequence[Size], stride: Sequence[Size], **options: Any) -> Meta:
    decline_if(len(size) != len(stride))
    meta = fresh(size, **options)
    return meta_of(meta.dtype, size, stride, meta.device)


@rule("empty_permuted")
def empty_permuted(size: Sequence[Size], physical_layout: Sequence[int], **options: Any) -> Meta:
    """Uninitialized memory, dense in the order of dimensions given."""
    meta = fresh(size, **options)
    return meta_of(meta.dtype, size, strides_in_order(size, physical_layout), meta.device)


@rule(
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like.default", "randn_like.default", "rand_like.generator",
    "randn_like.generator", "randint_like.default", "randint_like.generator", "randint_like.Tensor", "randint_like.low_dtype",
    "randint_like.low_generator_dtype", "clone", "_to_copy",
)  # fmt: skip
def like(
    x: FakeTensor,
    *values: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
    **others: Any,
) -> Meta:
    """The sizes of x, and its layout if dense."""
    decline_if(layout not in (None, torch.strided))
    m = x.meta
    place = m.device if device is None else resolve_device(device)
    return meta_of(dtype or m.dtype, m.sizes, copied_strides(x, memory_format), place)


@rule("new_empty", "new_zeros", "new_ones", "new_full")
def new(
    x: FakeTensor, size: Sequence[Size], *value: Any, dtype: Any = None, device: Any = None, **options: Any
) -> Meta:
    """The type and device of x, other sizes."""
    return fresh(size, dtype or x.meta.dtype, device=x.meta.device if device is None else device, **options)


@rule("new_empty_strided")
def new_empty_strided(
    x: FakeTensor, size: Sequence[Size], stride: Sequence[Size], *, dtype: Any = None, device: Any = None, **others: Any
) -> Meta:
    """The type and device of x, other sizes and strides."""
    return empty_strided(size, stride, dtype=dtype or x.meta.dtype, device=x.meta.device if device is None else device)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _steps(start: Any, end: Any, step: Any) -> Size:
    """How many numbers arange gives."""
    decline_if(isinstance(step, (int, float)) and step == 0)
    if all(_is_integer(v) for v in (start, end, step)):
        decline_if((end < start) if step > 0 else (end > start))
        return (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    decline_if(not all(isinstance(v, (int, float)) and math.isfinite(v) for v in (start, end, step)))
    count = math.ceil((float(end) - float(start)) / float(step))
    decline_if(count < 0 or (end - start) * step < 0)
    return count


@rule("arange.default", "arange.start", "arange.start_step")
def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None, **options: Any) -> Meta:
    """Numbers at equal distance; integral if all bounds are. Of one bound, it is the end."""
    if end is None:
        start, end = 0, start
    if dtype is None:
        dtype = torch.int64 if all(_is_integer(v) for v in (start, end, step)) else torch.get_default_dtype()
    elif not (dtype.is_floating_point or all(_is_integer(v) for v in (start, end, step))):
        start, end, step = (int(v) if dtype is torch.int64 else v for v in (start, end, step))
    return fresh((_steps(start, end, step),), dtype, **options)


@rule("linspace.default", "logspace.default")
def linspace(start: Any, end: Any, steps: Size, *rest: Any, dtype: Any = None, **options: Any) -> Meta:
    if dtype is None and (isinstance(start, complex) or isinstance(end, complex)):
        dtype = complex_of(torch.get_default_dtype())
    return fresh((steps,), dtype, **options)


@rule("eye.default", "eye.m")
def eye(n: Size, m: Size = None, **options: Any) -> Meta:
    """The identity matrix, which may have rows or columns to spare."""
    return fresh((n, n if m is None else m), **options)


@rule("normal.Tensor_Tensor")
def normal_of_tensors(mean: FakeTensor, std: FakeTensor, **others: Any) -> Meta:
    shape = broadcast([mean.meta.sizes, std.meta.sizes])
    return meta_of(mean.meta.dtype, shape, None, common_device([mean, std]))


@rule("multinomial")
def multinomial(x: FakeTensor, num_samples: Size, replacement: bool = False, *, generator: Any = None) -> Meta:
    decline_if(len(x.meta.sizes) not in (1, 2) or not x.meta.dtype.is_floating_point or num_samples <= 0)
    decline_if(not replacement and num_samples > x.meta.sizes[-1])
    return dense(x.meta, (*x.meta.sizes[:-1], num_samples), torch.int64)
