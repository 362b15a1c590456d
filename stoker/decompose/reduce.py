"""Reductions that are sums, maxima and arithmetic."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose, wide_type, widened


def _count(x: Tensor, dims: Any) -> Any:
    """How many elements one result is made of."""
    return math.prod(x.shape[dim] for dim in dims or range(x.dim())) if x.dim() else 1


@decompose("mean.default")
def mean_all(x: Tensor, *, dtype: Any = None) -> Tensor:
    return mean(x, None, False, dtype=dtype)


@decompose("mean.dim")
def mean(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    wanted = dtype or x.dtype
    total = torch.sum(x, dim if dim else list(range(x.dim())), keepdim, dtype=wide_type(wanted))
    return (total / _count(x, dim)).to(wanted)


@decompose("var_mean.correction", only_real=True)
def var_mean(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = list(dim) if dim else list(range(x.dim()))
    wide = widened(x)
    count = _count(x, dims)
    middle = torch.sum(wide, dims, True) / count
    away = wide - middle
    divisor = torch.sym_max(count - (1 if correction is None else correction), 0)
    spread = torch.sum(away * away, dims, keepdim) / divisor
    if not keepdim:
        middle = torch.sum(wide, dims, False) / count
    return spread.to(x.dtype), middle.to(x.dtype)


@decompose("std_mean.correction", only_real=True)
def std_mean(x: Tensor, dim: Any = None, **how: Any) -> tuple[Tensor, Tensor]:
    """Eager's kernels for the processor compute it in double precision."""
    wide = x.double() if x.device.type == "cpu" and x.dtype is torch.float32 else widened(x)
    spread, middle = var_mean(wide, dim, **how)
    return torch.sqrt(spread).to(x.dtype), middle.to(x.dtype)


decompose("var.correction", only_real=True)(lambda x, dim=None, **how: var_mean(x, dim, **how)[0])
decompose("std.correction", only_real=True)(lambda x, dim=None, **how: std_mean(x, dim, **how)[0])


def _softmax_type(x: Tensor, half_to_float: bool) -> torch.dtype:
    return torch.float32 if half_to_float else x.dtype


@decompose("_softmax.default")
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = widened(x)
    if x.numel() == 0:
        return torch.exp(wide).to(_softmax_type(x, half_to_float))
    raised = torch.exp(wide - torch.amax(wide, [dim], True))
    return (raised / torch.sum(raised, [dim], True)).to(_softmax_type(x, half_to_float))


@decompose("_log_softmax.default")
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = widened(x)
    if x.numel() == 0:
        return wide.clone().to(_softmax_type(x, half_to_float))
    shifted = wide - torch.amax(wide, [dim], True)
    return (shifted - torch.log(torch.sum(torch.exp(shifted), [dim], True))).to(_softmax_type(x, half_to_float))


@decompose("_softmax_backward_data.default")
def softmax_backward(gradient: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    wide, out = widened(gradient), widened(output)
    weighted = wide * out
    return (weighted - out * torch.sum(weighted, [dim], True)).to(dtype).contiguous()


@decompose("_log_softmax_backward_data.default")
def log_softmax_backward(gradient: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    wide, out = widened(gradient), widened(output)
    return (wide - torch.exp(out) * torch.sum(wide, [dim], True)).to(dtype)


@decompose("logsumexp.default")
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """Several kernels of eager's, each of which rounds."""
    if x.numel() == 0 or not x.is_floating_point():
        return NotImplemented
    dims = list(dim) if dim else list(range(x.dim()))
    top = torch.amax(x, dims, True)
    top = torch.where(top.abs() == float("inf"), torch.zeros((), dtype=x.dtype, device=x.device), top)
    total = torch.log(torch.sum(torch.exp(x - top), dims, True)) + top
    if keepdim or not x.dim():
        return total
    kept = [s for i, s in enumerate(total.shape) if i not in {d % x.dim() for d in dims}]
    return total.view(kept)


@decompose("_safe_softmax.default")
def safe_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """A row of -inf alone is a row of zeros."""
    if not x.dim():
        return NotImplemented
    weights = torch.softmax(x, dim, dtype=dtype)
    nothing = torch.all(x == float("-inf"), dim, keepdim=True)
    return torch.where(nothing, torch.zeros((), dtype=weights.dtype, device=x.device), weights)


decompose("trace.default", only_real=True)(lambda x: x.diagonal().sum())
