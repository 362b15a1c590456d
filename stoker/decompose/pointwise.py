"""Element by element: arithmetic forms that are two or three simpler ones."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose, decompose_all, in_float, of_one_type, wide_type

aten = torch.ops.aten


@decompose("rsub.Tensor", "rsub.Scalar")
def rsub(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return torch.sub(other, x, alpha=alpha) if isinstance(other, Tensor) else torch.mul(x, -alpha) + other


@decompose("addcmul.default")
@of_one_type
@in_float
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return x + (a * b if _is_one(value) else value * a * b)


@decompose("addcdiv.default")
@of_one_type
@in_float
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return x + (a / b if _is_one(value) else value * a / b)


def _is_one(factor: Any) -> bool:
    """Is nothing to be multiplied? A factor that varies is not asked: it may be one that only data tells."""
    return isinstance(factor, (int, float, complex)) and factor == 1


@decompose("lerp.Scalar", "lerp.Tensor")
@in_float
def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    difference = end - start
    if isinstance(weight, torch.SymFloat):
        weight = aten.full.default((), weight, dtype=start.dtype, device=start.device)
    if not isinstance(weight, Tensor):
        return start + weight * difference if abs(weight) < 0.5 else end - difference * (1 - weight)
    return torch.where(weight.abs() < 0.5, start + weight * difference, end - difference * (1 - weight))


@decompose("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        value = torch.full((), value, dtype=x.dtype, device=x.device)
    return torch.where(mask, value.to(x.dtype), x)


@decompose("logit.default")
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """The limits are numbers of the tensor's own type, in which 0.999 may be 1."""
    if not x.is_floating_point():
        x = x.to(torch.get_default_dtype())
    if eps is not None and eps >= 0:
        x = torch.clamp(x, eps, 1 - eps)
    return _log_odds(x)


@in_float
def _log_odds(x: Tensor) -> Tensor:
    return torch.log(x / (1 - x))


@decompose("logit_backward.default")
@in_float
def logit_backward(gradient: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    low, beyond = (0.0, math.nan) if eps is None or eps < 0 else (eps, 0.0)
    outside = torch.full((), beyond, dtype=x.dtype, device=x.device)
    return torch.where((x >= low) & (x <= 1 - low), gradient / (x * (1 - x)), outside)


def _floating(*operands: Any) -> torch.dtype:
    """The type in which operands that may be whole numbers are computed."""
    common = torch.result_type(*operands)
    return common if common.is_floating_point else torch.get_default_dtype()


def _times_log(x: Any, y: Any, log: Any) -> Tensor:
    """x log(y), which is 0 where x is 0 and no number where y is none."""
    dtype = _floating(x, y)
    device = next(t.device for t in (x, y) if isinstance(t, Tensor))
    wide = wide_type(dtype)
    x, y = (torch.as_tensor(t, dtype=wide, device=device) if not isinstance(t, Tensor) else t.to(wide) for t in (x, y))
    zero = torch.zeros((), dtype=wide, device=device)
    return torch.where(torch.isnan(y), y, torch.where(x == 0, zero, x * log(y))).to(dtype)


@decompose("special_entr.default")
def entropy(x: Tensor) -> Tensor:
    dtype = _floating(x, x)
    wide = x.to(wide_type(dtype))
    below, zero = (torch.full((), v, dtype=wide.dtype, device=x.device) for v in (-math.inf, 0.0))
    at_most = torch.where(wide == 0, zero, below)
    return torch.where(torch.isnan(wide), wide, torch.where(wide > 0, -wide * torch.log(wide), at_most)).to(dtype)


@decompose("sinc.default", only_real=True)
def sinc(x: Tensor) -> Tensor:
    dtype = _floating(x, x)
    wide = x.to(wide_type(dtype))
    angle = wide * math.pi
    one = torch.ones((), dtype=wide.dtype, device=x.device)
    return torch.where(wide == 0, one, torch.sin(angle) / angle).to(dtype)


@decompose("angle.default")
def angle(x: Tensor) -> Tensor:
    if x.is_complex() or not x.dtype.is_signed:  # most of which eager does not compare
        return NotImplemented
    dtype = _floating(x, x)
    turned, straight = (torch.full((), v, dtype=dtype, device=x.device) for v in (math.pi, 0.0))
    found = torch.where(x < 0, turned, straight)
    return torch.where(torch.isnan(x), x, found) if x.is_floating_point() else found


@decompose("addr.default")
@in_float
def addr(x: Tensor, rows: Tensor, columns: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if not x.is_floating_point() or not x.dtype is rows.dtype is columns.dtype:
        return NotImplemented
    product = rows.unsqueeze(1) * columns
    product = product if _is_one(alpha) else product * alpha
    if beta == 0:
        return product
    return (x if _is_one(beta) else x * beta) + product


def _full(size: Any, value: Any, dtype: Any, **options: Any) -> Tensor:
    return aten.full.default(size, value, dtype=dtype or torch.get_default_dtype(), **options)


def _new(x: Tensor, size: Any, value: Any, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    return aten.full.default(size, value, dtype=dtype or x.dtype, device=device or x.device)


decompose_all(
    {
        "square": lambda x: x * x,
        "frac": lambda x: x - torch.trunc(x),
        "deg2rad": lambda x: x * (math.pi / 180),
        "rad2deg": lambda x: x * (180 / math.pi),
        "sgn": lambda x: NotImplemented if x.is_complex() else torch.sign(x),
        "clamp_min clamp_min.Tensor": lambda x, low: torch.clamp(x, min=low),
        "clamp_max clamp_max.Tensor": lambda x, high: torch.clamp(x, max=high),
        "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self": lambda x, y: _times_log(x, y, torch.log),
        "special_xlog1py": lambda x, y: _times_log(x, y, torch.log1p),
        "zeros_like": lambda x, **options: aten.full_like.default(x, 0, **options),
        "ones_like": lambda x, **options: aten.full_like.default(x, 1, **options),
        "zero": lambda x: aten.full_like.default(x, 0),
        "fill.Scalar": lambda x, value: aten.full_like.default(x, value),
        "zeros": lambda size, *, dtype=None, **options: _full(size, 0, dtype, **options),
        "ones": lambda size, *, dtype=None, **options: _full(size, 1, dtype, **options),
        "scalar_tensor": lambda value, *, dtype=None, **options: _full([], value, dtype, **options),
        "new_zeros": lambda x, size, **options: _new(x, size, 0, **options),
        "new_ones": lambda x, size, **options: _new(x, size, 1, **options),
        "new_full": lambda x, size, value, **options: _new(x, size, value, **options),
    }
)
