"""Cumulative operators: scans along one dimension, accumulated in the type eager accumulates in."""

from __future__ import annotations

import torch

from stoker.loop.handler import ops
from stoker.loop.view import Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype, require_supported
from stoker.lower.registry import Result, leave_if, lower
from stoker.lower.view import dimension

_WIDER = {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32}


def _scanned(
    builder: Builder, out: list[Result], x: Tensor, dim: int, kinds: list[str], dtype: torch.dtype
) -> list[Stored]:
    require_supported(x.dtype, *(result.dtype for result in out))
    leave_if(not x.sizes, "a tensor without dimensions")
    length, limit = x.sizes[dim].value, builder.target(x.device).longest_scan
    leave_if(limit is not None and (length is None or length > limit), "a running reduction of long rows")
    return builder.scan(out, dimension(dim, len(x.sizes)), kinds, lambda at: ops.to_dtype(x.at(at), dtype))


@lower("cumsum.default", kind="sum")
@lower("cumprod.default", kind="prod")
@lower("logcumsumexp.default", kind="logaddexp")
def cumulative(
    builder: Builder, out: Result, x: Tensor, dim: int, *, dtype: torch.dtype | None = None, kind: str
) -> Tensor:
    require_supported(x.dtype, out.dtype)
    leave_if(out.dtype is torch.bool, "sums of truth values that stay truth values")
    rounded = x
    if out.dtype is not x.dtype:  # eager converts first, and rounds there
        rounded = builder.compute(out, lambda at: ops.to_dtype(x.at(at), out.dtype), [x])
    wide = _WIDER.get(out.dtype, out.dtype) if builder.target(x.device).wide_scans else compute_dtype(out.dtype)
    return _scanned(builder, [out], rounded, dim, [kind], wide)[0]


@lower("cummax.default", kind="max")
@lower("cummin.default", kind="min")
def extreme_so_far(builder: Builder, out: list[Result], x: Tensor, dim: int, *, kind: str) -> list[Stored]:
    return _scanned(builder, out, x, dim, [kind, f"arg{kind}"], compute_dtype(x.dtype))
