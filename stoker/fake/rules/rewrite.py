"""Operators that write their first argument, and those that change its metadata or need its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.meta import Size, contiguous_strides, dense, formatted_strides, meta_of, same
from stoker.fake.promote import broadcast
from stoker.fake.rule import IMPURE, RULES, decline_if, rule
from stoker.fake.rules.view import wrap
from stoker.fake.tensor import FakeStorage, FakeTensor, make_fake, restride

_OVERWRITE = """
fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ cauchy_ geometric_
_fill_mem_eff_dropout_mask_ fill_diagonal_ relu_ hardtanh_
"""


@rule(*_OVERWRITE.split())
def overwrite(x: FakeTensor, *rest: Any, **others: Any) -> FakeTensor:
    """New content, same metadata."""
    return x


@rule("abs_")
def overwrite_real(x: FakeTensor) -> FakeTensor:
    """The absolute value of a complex number is of another type."""
    decline_if(x.meta.dtype.is_complex)
    return x


@rule("cumsum_", "cumprod_")
def accumulate(x: FakeTensor, dim: int, *, dtype: torch.dtype | None = None) -> FakeTensor:
    """In the type that it is, which truth values do not have."""
    wrap(dim, len(x.meta.sizes))
    decline_if(dtype not in (None, x.meta.dtype) or x.meta.dtype is torch.bool)
    return x


@rule("copy_", "masked_fill_")
def overwrite_with(x: FakeTensor, source: FakeTensor, *rest: Any, **others: Any) -> FakeTensor:
    """New content from something that must broadcast to x."""
    decline_if(not same(broadcast([x.meta.sizes, source.meta.sizes]), x.meta.sizes))
    decline_if(any(isinstance(value, FakeTensor) and value.meta.sizes for value in rest))
    return x


@rule("t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_", table=IMPURE)
def reshape_in_place(mode: Any, func: Any, x: FakeTensor, *rest: Any, **others: Any) -> FakeTensor:
    """The metadata that the view of the same name would have, given to x itself."""
    name = torch_private.schema_of(func).name.removeprefix("aten::").removesuffix("_")
    overload = "int" if name == "transpose" else torch_private.overload_name(func)
    seen = mode.propagate(getattr(getattr(torch.ops.aten, name), overload), (x, *rest), others)
    return restride(x, seen.meta)


@rule("detach_", table=IMPURE)
def detach_(mode: Any, func: Any, x: FakeTensor) -> FakeTensor:
    """Of autograd's concern only."""
    return x


@rule("resize_", table=IMPURE)
def resize_(mode: Any, func: Any, x: FakeTensor, size: Sequence[Size], *, memory_format: Any = None) -> FakeTensor:
    """Other sizes, contiguous, in the same memory grown as needed."""
    if same(x.meta.sizes, size) and memory_format in (None, torch.preserve_format):
        return x
    strides = formatted_strides(size, memory_format in (torch.channels_last, torch.channels_last_3d))
    return restride(x, meta_of(x.meta.dtype, size, strides, x.meta.device, x.meta.offset))


@rule("stride.default", table=IMPURE)
def stride(mode: Any, func: Any, x: FakeTensor) -> list[int]:
    """Asked by C++ code that counts with plain numbers."""
    return [int(step) for step in x.meta.strides]


@rule("addbmm_", table=IMPURE)
def addbmm_(mode: Any, func: Any, x: FakeTensor, *rest: Any, **scales: Any) -> FakeTensor:
    """Eager gives x the sizes of the result, where all others of its kind refuse."""
    made = mode.propagate(torch.ops.aten.addbmm.default, (x, *rest), scales).meta
    if same(x.meta.sizes, made.sizes):
        x.memory.forget()
        return x
    return restride(x, meta_of(x.meta.dtype, made.sizes, None, x.meta.device, x.meta.offset))


@rule("resize_as_", table=IMPURE)
def resize_as_(mode: Any, func: Any, x: FakeTensor, other: FakeTensor, **options: Any) -> FakeTensor:
    return resize_(mode, func, x, other.meta.sizes, **options)


@rule("set_.source_Tensor", table=IMPURE)
def set_tensor(mode: Any, func: Any, x: FakeTensor, source: torch.Tensor) -> FakeTensor:
    """x becomes another name of the source's memory."""
    fake = mode.as_fake(source)
    return restride(x, fake.meta, fake.memory)


@rule("set_.default", table=IMPURE)
def set_nothing(mode: Any, func: Any, x: FakeTensor) -> FakeTensor:
    return restride(x, dense(x.meta, (0,)), FakeStorage(mode))


@rule("set_.source_Storage_storage_offset", table=IMPURE)
def set_storage(
    mode: Any, func: Any, x: FakeTensor, source: Any, offset: Size, size: Sequence[Size], stride: Sequence[Size] = ()
) -> FakeTensor:
    """x becomes a view of given memory."""
    strides = stride if len(stride) or not len(size) else contiguous_strides(size)
    return restride(x, meta_of(x.meta.dtype, size, strides, x.meta.device, offset), FakeStorage(mode))


@rule("lift_fresh.default", table=IMPURE)
def lift_fresh(mode: Any, func: Any, x: torch.Tensor) -> FakeTensor:
    """What torch.tensor(...) made a moment ago: nobody else holds it, so a single number may be remembered."""
    if isinstance(x, FakeTensor):
        return make_fake(x.meta, x.memory)
    meta = meta_of(x.dtype, x.shape, x.stride(), x.device)
    known = x.detach().clone() if x.numel() == 1 and x.device.type == "cpu" else None
    return make_fake(meta, FakeStorage(mode, known))


RULES.pop(torch.ops.aten.lift_fresh.default, None)


@rule("size.default", table=IMPURE)
def plain_sizes(mode: Any, func: Any, x: FakeTensor) -> list[int]:
    """Asked by C++ code that knows no symbolic sizes: they hold for this size only (attention by its formula, torch 2.11)."""
    return [int(size) for size in x.meta.sizes]


@rule("is_pinned", table=IMPURE)
def is_pinned(mode: Any, func: Any, x: Any, device: Any = None) -> bool:
    """Nothing without memory is."""
    return False
