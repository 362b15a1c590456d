"""Element by element: arithmetic forms that are two or three simpler ones."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose, in_float


@decompose("rsub.Tensor", "rsub.Scalar")
def rsub(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return torch.sub(other, x, alpha=alpha) if isinstance(other, Tensor) else torch.mul(x, -alpha) + other


@decompose("addcmul.default")
@in_float
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return x + (a * b if value == 1 else value * a * b)


@decompose("addcdiv.default")
@in_float
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return x + (a / b if value == 1 else value * a / b)


@decompose("lerp.Scalar", "lerp.Tensor")
@in_float
def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    difference = end - start
    if not isinstance(weight, Tensor):
        return start + weight * difference if abs(weight) < 0.5 else end - difference * (1 - weight)
    return torch.where(weight.abs() < 0.5, start + weight * difference, end - difference * (1 - weight))


@decompose("square.default")
def square(x: Tensor) -> Tensor:
    return x * x


@decompose("frac.default")
def frac(x: Tensor) -> Tensor:
    return x - torch.trunc(x)


@decompose("deg2rad.default")
def deg2rad(x: Tensor) -> Tensor:
    return x * (math.pi / 180)


@decompose("rad2deg.default")
def rad2deg(x: Tensor) -> Tensor:
    return x * (180 / math.pi)


@decompose("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        value = torch.full((), value, dtype=x.dtype, device=x.device)
    return torch.where(mask, value.to(x.dtype), x)


@decompose("clamp_min.default", "clamp_min.Tensor")
def clamp_min(x: Tensor, low: Any) -> Tensor:
    return torch.clamp(x, min=low)


@decompose("clamp_max.default", "clamp_max.Tensor")
def clamp_max(x: Tensor, high: Any) -> Tensor:
    return torch.clamp(x, max=high)


@decompose("logit.default")
@in_float
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    if eps is not None:
        x = torch.clamp(x, eps, 1 - eps)
    return torch.log(x / (1 - x))


@decompose("xlogy.Tensor")
@in_float
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    if not x.is_floating_point() or x.dtype is not y.dtype:
        return NotImplemented
    return torch.where(
        torch.isnan(y), y, torch.where(x == 0, torch.zeros((), dtype=x.dtype, device=x.device), x * y.log())
    )


@decompose("zeros_like.default")
def zeros_like(x: Tensor, **options: Any) -> Tensor:
    return torch.ops.aten.full_like.default(x, 0, **options)


@decompose("ones_like.default")
def ones_like(x: Tensor, **options: Any) -> Tensor:
    return torch.ops.aten.full_like.default(x, 1, **options)


@decompose("zeros.default")
def zeros(size: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    return torch.ops.aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), **options)


@decompose("ones.default")
def ones(size: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    return torch.ops.aten.full.default(size, 1, dtype=dtype or torch.get_default_dtype(), **options)


@decompose("scalar_tensor.default")
def scalar_tensor(value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    return torch.ops.aten.full.default([], value, dtype=dtype or torch.get_default_dtype(), **options)


@decompose("new_zeros.default")
def new_zeros(x: Tensor, size: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    return torch.ops.aten.full.default(size, 0, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_ones.default")
def new_ones(x: Tensor, size: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    return torch.ops.aten.full.default(size, 1, dtype=dtype or x.dtype, device=device or x.device)


@decompose("new_full.default")
def new_full(x: Tensor, size: Any, value: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    return torch.ops.aten.full.default(size, value, dtype=dtype or x.dtype, device=device or x.device)


@decompose("fill.Scalar")
def fill(x: Tensor, value: Any) -> Tensor:
    return torch.ops.aten.full_like.default(x, value)
