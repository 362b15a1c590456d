"""Normalizations and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose, widened
from stoker.fake.rules.channels import per_channel

stoker = torch.ops.stoker


def _statistics_type(x: Tensor, *parameters: Any) -> torch.dtype:
    """Of the moments that a norm keeps: the input's on a CPU whose parameters, if any, are of that type too; wide otherwise."""
    same = all(p is None or p.dtype is x.dtype for p in parameters)
    return x.dtype if same and x.device.type == "cpu" else widened(x).dtype


def _affine(out: Tensor, weight: Any, bias: Any) -> Tensor:
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


@decompose("native_layer_norm.default")
def layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.dim() - len(shape), x.dim()))
    wide = widened(x)
    spread, middle = torch.var_mean(wide, dims, correction=0, keepdim=True)
    scale = torch.rsqrt(spread + eps)
    out = _affine((wide - middle) * scale, weight, bias)
    kept = _statistics_type(x, weight, bias)
    return out.to(x.dtype).contiguous(), middle.to(kept), scale.to(kept)


@decompose("native_layer_norm_backward.default")
def layer_norm_backward(
    gradient: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: list[bool]
) -> tuple[Any, Any, Any]:
    inner = list(range(x.dim() - len(shape), x.dim()))
    outer = list(range(x.dim() - len(shape)))
    count: Any = math.prod(shape)
    upstream, mean, rstd = widened(gradient), widened(mean), widened(rstd)
    normal = (widened(x) - mean) * rstd
    dx = dw = db = None
    if mask[0]:
        scaled = upstream * weight if weight is not None else upstream
        total = torch.sum(scaled, inner, True)
        along = torch.sum(scaled * normal, inner, True)
        dx = (rstd / count * (count * scaled - total - normal * along)).to(x.dtype)
    if mask[1] and weight is not None:
        dw = (torch.sum(upstream * normal, outer) if outer else upstream * normal).to(weight.dtype)
    if mask[2] and bias is not None:
        db = (torch.sum(upstream, outer) if outer else upstream.clone()).to(bias.dtype)
    return dx, dw, db


@decompose("_fused_rms_norm.default")
def rms_norm(x: Tensor, shape: Any, weight: Any, eps: float | None) -> tuple[Tensor, Tensor]:
    dims = list(range(x.dim() - len(shape), x.dim()))
    wide = widened(x)
    eps = torch.finfo(wide.dtype).eps if eps is None else eps
    scale = torch.rsqrt(torch.mean(wide * wide, dims, True) + eps)
    return (wide * scale if weight is None else wide * scale * weight).to(x.dtype).contiguous(), scale


@decompose("_fused_rms_norm_backward.default")
def rms_norm_backward(
    gradient: Tensor, x: Tensor, shape: Any, rstd: Tensor, weight: Any, mask: list[bool]
) -> tuple[Any, Any]:
    inner = list(range(x.dim() - len(shape), x.dim()))
    outer = list(range(x.dim() - len(shape)))
    upstream, rstd = widened(gradient), widened(rstd)
    normal = widened(x) * rstd
    dx = dw = None
    if mask[0]:
        scaled = upstream * weight if weight is not None else upstream
        dx = (rstd * (scaled - normal * torch.mean(scaled * normal, inner, True))).to(x.dtype)
    if mask[1] and weight is not None:
        dw = (torch.sum(upstream * normal, outer) if outer else upstream * normal).to(weight.dtype)
    return dx, dw


def _normalized(x: Tensor, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalized by the batch's own moments; then mean, scale and variance of each channel."""
    dims = [0, *range(2, x.dim())]
    wide = widened(x)
    spread, middle = torch.var_mean(wide, dims, correction=0, keepdim=False)
    scale = torch.rsqrt(spread + eps)
    return stoker.normalize(wide, middle, scale, weight, bias).to(x.dtype), middle, scale, spread


@decompose("_native_batch_norm_legit_functional.default")
def batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    if not training or x.numel() == 0:
        return NotImplemented
    out, middle, scale, spread = _normalized(x, weight, bias, eps)
    count: Any = math.prod(x.shape[dim] for dim in [0, *range(2, x.dim())])
    unbiased = spread * (count / (count - 1)) if count != 1 else spread * float("nan")
    new_mean, new_variance = stoker.running(mean, middle, momentum), stoker.running(variance, unbiased, momentum)
    kept = _statistics_type(x, mean if weight is None else weight)
    return out, middle.to(kept), scale.to(kept), new_mean, new_variance


@decompose("native_batch_norm.default", "_native_batch_norm_legit_no_training.default")
def batch_norm_evaluated(x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> tuple[Tensor, ...]:
    if len(rest) == 3 and rest[0]:
        if mean is not None or not x.numel():
            return NotImplemented
        out, middle, scale, _ = _normalized(x, weight, bias, rest[-1])
        kept = _statistics_type(x, mean if weight is None else weight)
        return out, middle.to(kept), scale.to(kept)
    wide = widened(x)
    scale = torch.rsqrt(widened(variance) + rest[-1])
    out = stoker.normalize(wide, mean, scale, weight, bias).to(x.dtype)
    kept = _statistics_type(x, mean if weight is None else weight)
    if x.device.type == "cuda":  # there eager gives what it normalized by, elsewhere nothing
        return out, mean.to(kept, copy=True), scale.to(kept)
    empty = x.new_zeros((0,), dtype=kept)
    return out, empty, empty.clone()


@decompose("native_batch_norm_backward.default")
def batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Any,
    mean: Any,
    variance: Any,
    saved_mean: Any,
    saved_scale: Any,
    training: bool,
    eps: float,
    mask: list[bool],
) -> tuple[Any, Any, Any]:
    dims = [0, *range(2, x.dim())]
    upstream = widened(gradient)
    middle, scale = (saved_mean, saved_scale) if training else (mean, torch.rsqrt(widened(variance) + eps))
    normal = stoker.normalize(widened(x), middle, scale, None, None)
    db = torch.sum(upstream, dims)
    dw = torch.sum(upstream * normal, dims)
    dx = None
    if mask[0]:
        sums = (db, dw) if training else (None, None)
        dx = stoker.normalize_backward(upstream, normal, scale, weight, *sums).to(x.dtype)
    kept = x.dtype if weight is None else weight.dtype
    return dx, dw.to(kept) if mask[1] else None, db.to(kept) if mask[2] else None


@decompose("native_group_norm.default")
def group_norm(
    x: Tensor, weight: Any, bias: Any, batch: Any, channels: Any, rest: Any, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if x.numel() == 0:
        return NotImplemented
    wide = widened(x).contiguous().view(batch, groups, -1)
    spread, middle = torch.var_mean(wide, [2], correction=0, keepdim=True)
    scale = torch.rsqrt(spread + eps)
    out = ((wide - middle) * scale).view(x.shape)
    out = _affine(out, *(None if p is None else per_channel(p, x.dim()) for p in (weight, bias))).to(x.dtype)
    kept = _statistics_type(x, weight, bias)
    return out, middle.view(batch, groups).to(kept), scale.view(batch, groups).to(kept)


@decompose("native_group_norm_backward.default")
def group_norm_backward(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    scale: Tensor,
    weight: Any,
    batch: Any,
    channels: Any,
    rest: Any,
    groups: int,
    mask: list[bool],
) -> tuple[Any, Any, Any]:
    if x.numel() == 0:
        return NotImplemented
    shape = (batch, groups, channels // groups, rest)
    upstream = widened(gradient).contiguous().view(shape)
    middle, spread = (widened(s).view(batch, groups, 1, 1) for s in (mean, scale))
    normal = (widened(x).contiguous().view(shape) - middle) * spread
    dx = dw = db = None
    if mask[0]:
        scaled = upstream if weight is None else upstream * weight.view(1, groups, channels // groups, 1)
        count = channels // groups * rest
        total, along = torch.sum(scaled, [2, 3], True), torch.sum(scaled * normal, [2, 3], True)
        dx = (spread * (scaled - (total + normal * along) / count)).view(x.shape).to(x.dtype)
    kept = x.dtype if weight is None else weight.dtype
    if mask[1]:
        dw = torch.sum(upstream * normal, [0, 3]).view(channels).to(kept)
    if mask[2]:
        db = torch.sum(upstream, [0, 3]).view(channels).to(kept)
    return dx, dw, db
