"""Tensors from nothing: sizes come from arguments, types from arguments or the default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, Size, channels_last_strides, meta_of, strides_in_order
from stoker.fake.promote import broadcast, common_device, complex_of, number_dtype
from stoker.fake.rule import Decline, rule
from stoker.fake.rules.pointwise import copied_strides, resolve_device
from stoker.fake.tensor import FakeTensor


def fresh(sizes: Sequence[Size], dtype: torch.dtype | None, device: Any, layout: Any = None) -> Meta:
    """A contiguous tensor."""
    if layout not in (None, torch.strided) or any(type(s) is int and s < 0 for s in sizes):
        raise Decline
    return meta_of(dtype or torch.get_default_dtype(), sizes, None, resolve_device(device))


@rule("empty.memory_format")
def empty(
    size: Sequence[Size],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Meta:
    """Uninitialized memory."""
    meta = fresh(size, dtype, device, layout)
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        if len(size) != (4 if memory_format is torch.channels_last else 5):
            raise Decline
        return meta_of(meta.dtype, size, channels_last_strides(size), meta.device)
    return meta


@rule("zeros.default", "ones.default", "rand.default", "randn.default", "rand.generator", "randn.generator")
def filled(size: Sequence[Size], *, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any) -> Meta:
    """A tensor of one value, or of random ones."""
    return fresh(size, dtype, device, layout)


@rule("full.default")
def full(
    size: Sequence[Size], fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any
) -> Meta:
    """The value decides the type unless one is given."""
    return fresh(size, dtype or number_dtype(fill_value), device, layout)


@rule("scalar_tensor")
def scalar_tensor(value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any) -> Meta:
    """A 0-d tensor of the default type."""
    return fresh((), dtype, device, layout)


@rule("randint.default", "randint.generator")
def randint(high: Any, size: Sequence[Size], *args: Any, dtype: Any = torch.int64, **others: Any) -> Meta:
    """Random integers below `high`."""
    return fresh(size, dtype or torch.int64, others.get("device"), others.get("layout"))


@rule("randint.low", "randint.low_generator")
def randint_low(low: Any, high: Any, size: Sequence[Size], *args: Any, dtype: Any = torch.int64, **others: Any) -> Meta:
    """Random integers in a range."""
    return fresh(size, dtype or torch.int64, others.get("device"), others.get("layout"))


@rule("randperm.default", "randperm.generator")
def randperm(n: Size, *args: Any, dtype: Any = torch.int64, **others: Any) -> Meta:
    """A random order of n numbers."""
    return fresh((n,), dtype or torch.int64, others.get("device"), others.get("layout"))


@rule("empty_strided")
def empty_strided(
    size: Sequence[Size], stride: Sequence[Size], *, dtype: Any = None, layout: Any = None, device: Any = None, **o: Any
) -> Meta:
    """Uninitialized memory with given strides."""
    if len(size) != len(stride):
        raise Decline
    meta = fresh(size, dtype, device, layout)
    return meta_of(meta.dtype, size, stride, meta.device)


@rule("empty_permuted")
def empty_permuted(size: Sequence[Size], physical_layout: Sequence[int], *, dtype: Any = None, **o: Any) -> Meta:
    """Uninitialized memory, dense in the order of dimensions given."""
    meta = fresh(size, dtype, o.get("device"), o.get("layout"))
    return meta_of(meta.dtype, size, strides_in_order(size, physical_layout), meta.device)


@rule(
    "empty_like", "zeros_like", "ones_like", "rand_like.default", "randn_like.default", "rand_like.generator",
    "randn_like.generator",
)  # fmt: skip
def like(
    x: FakeTensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
    **others: Any,
) -> Meta:
    """The sizes of x, and its layout if dense."""
    if layout not in (None, torch.strided):
        raise Decline
    m = x.meta
    place = m.device if device is None else resolve_device(device)
    return meta_of(dtype or m.dtype, m.sizes, copied_strides(x, memory_format), place)


@rule("full_like", "randint_like.default", "randint_like.generator", "randint_like.Tensor")
def like_with_value(x: FakeTensor, value: Any, **options: Any) -> Meta:
    """The sizes of x."""
    return like(x, **options)


@rule("randint_like.low_dtype", "randint_like.low_generator_dtype")
def like_with_range(x: FakeTensor, low: Any, high: Any, **options: Any) -> Meta:
    """The sizes of x."""
    return like(x, **options)


@rule("new_empty", "new_zeros", "new_ones")
def new(
    x: FakeTensor, size: Sequence[Size], *, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any
) -> Meta:
    """The type and device of x, other sizes."""
    return fresh(size, dtype or x.meta.dtype, x.meta.device if device is None else device, layout)


@rule("new_full")
def new_full(x: FakeTensor, size: Sequence[Size], fill_value: Any, **options: Any) -> Meta:
    """The type and device of x, other sizes."""
    return new(x, size, **options)


@rule("new_empty_strided")
def new_empty_strided(
    x: FakeTensor, size: Sequence[Size], stride: Sequence[Size], *, dtype: Any = None, **o: Any
) -> Meta:
    """The type and device of x, other sizes and strides."""
    device = o.get("device")
    return empty_strided(size, stride, dtype=dtype or x.meta.dtype, device=x.meta.device if device is None else device)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _steps(start: Any, end: Any, step: Any) -> Size:
    """How many numbers arange gives."""
    if isinstance(step, (int, float)) and step == 0:
        raise Decline
    if all(_is_integer(v) for v in (start, end, step)):
        if (end < start) if step > 0 else (end > start):
            raise Decline
        return (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in (start, end, step)):
        raise Decline
    count = math.ceil((float(end) - float(start)) / float(step))
    if count < 0 or (end - start) * step < 0:
        raise Decline
    return count


@rule("arange.start_step")
def arange(
    start: Any, end: Any, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None, **o: Any
) -> Meta:
    """Numbers at equal distance; integral if all bounds are."""
    if dtype is None:
        dtype = torch.int64 if all(_is_integer(v) for v in (start, end, step)) else torch.get_default_dtype()
    elif not (dtype.is_floating_point or all(_is_integer(v) for v in (start, end, step))):
        start, end, step = (int(v) if dtype is torch.int64 else v for v in (start, end, step))
    return fresh((_steps(start, end, step),), dtype, device, layout)


@rule("arange.default")
def arange_end(end: Any, **options: Any) -> Meta:
    """From zero."""
    return arange(0, end, 1, **options)


@rule("arange.start")
def arange_start(start: Any, end: Any, **options: Any) -> Meta:
    """In steps of one."""
    return arange(start, end, 1, **options)


@rule("linspace.default", "logspace.default")
def linspace(start: Any, end: Any, steps: Size, *rest: Any, dtype: Any = None, **options: Any) -> Meta:
    """`steps` numbers between two."""
    if dtype is None and (isinstance(start, complex) or isinstance(end, complex)):
        dtype = complex_of(torch.get_default_dtype())
    return fresh((steps,), dtype, options.get("device"), options.get("layout"))


@rule("eye.default")
def eye(n: Size, *, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any) -> Meta:
    """The identity matrix."""
    return fresh((n, n), dtype, device, layout)


@rule("eye.m")
def eye_m(n: Size, m: Size, *, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any) -> Meta:
    """The identity matrix with rows or columns to spare."""
    return fresh((n, m), dtype, device, layout)


@rule("bernoulli.default", "bernoulli.p", "normal.Tensor_float", "normal.float_Tensor", "poisson", "_standard_gamma")
def random_dense(x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """Random numbers that a tensor parametrizes, contiguous."""
    x = x if isinstance(x, FakeTensor) else rest[0]
    return meta_of(x.meta.dtype, x.meta.sizes, None, x.meta.device)


@rule("bernoulli.Tensor", "normal_functional", "uniform", "exponential", "random")
def random_like(x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """Random numbers in the layout of x."""
    return like(x)


@rule("normal.Tensor_Tensor")
def normal_of_tensors(mean: FakeTensor, std: FakeTensor, **others: Any) -> Meta:
    """Random numbers with a mean and a deviation each."""
    shape = broadcast([mean.meta.sizes, std.meta.sizes])
    return meta_of(mean.meta.dtype, shape, None, common_device([mean, std]))


@rule("multinomial")
def multinomial(x: FakeTensor, num_samples: Size, replacement: bool = False, *, generator: Any = None) -> Meta:
    """Indices drawn with given weights."""
    if len(x.meta.sizes) not in (1, 2) or not x.meta.dtype.is_floating_point or num_samples <= 0:
        raise Decline
    if not replacement and num_samples > x.meta.sizes[-1]:
        raise Decline
    return meta_of(torch.int64, (*x.meta.sizes[:-1], num_samples), None, x.meta.device)
