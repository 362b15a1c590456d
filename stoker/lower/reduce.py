"""Reductions over any set of dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype, require_supported
from stoker.lower.registry import Dims, Result, leave_if, lower
from stoker.lower.view import dimension
from stoker.shape.expr import constant

Prepare = Callable[[LoopValue], LoopValue]
"""What is combined, of an element."""


def dimensions(x: Tensor, dims: Dims) -> list[int]:
    """The dimensions that are named, or all."""
    rank = len(x.sizes)
    given = range(rank) if dims is None or dims == [] else ([dims] if isinstance(dims, int) else dims)
    return sorted({dimension(d, rank) for d in given}) if rank else []


def reduced(builder: Builder, out: Result, x: Tensor, dims: Dims, keepdim: bool, kind: str, prepare: Prepare) -> Tensor:
    """Reduce these dimensions (all, if none are named). `prepare` makes the value that is combined."""
    rank, over = len(x.sizes), dimensions(x, dims)
    kept = [d for d in range(rank) if d not in over]
    strides = tuple(out.strides[d] if keepdim else out.strides[p] for p, d in enumerate(kept))
    require_supported(out.dtype, x.dtype)

    def element(outer: Index, inner: Index) -> LoopValue:
        index: list[Any] = [constant(0)] * rank
        for at, d in zip(outer, kept):
            index[d] = at
        for at, d in zip(inner, over):
            index[d] = at
        return prepare(x.at(tuple(index)))

    if all(x.sizes[d].value == 1 for d in over):
        return _of_one(builder, out, x, [d if keepdim else p for p, d in enumerate(kept)], len(over), kind, element)
    return builder.reduce(out, tuple(x.sizes[d] for d in kept), strides, tuple(x.sizes[d] for d in over), kind, element)


def _of_one(
    builder: Builder, out: Result, x: Tensor, places: list[int], over: int, kind: str, element: Callable[..., Any]
) -> Tensor:
    """A reduction of single elements is no reduction."""
    inner = (constant(0),) * over

    def single(at: Index) -> LoopValue:
        if kind.startswith("arg"):
            return ops.constant(0, out.dtype)
        value = element(tuple(at[p] for p in places), inner)
        if kind == "moment":
            value = ops.sub(value, value)  # its distance from itself, which is no number if it is infinite
        return ops.to_dtype(value, out.dtype)

    return builder.compute(out, single, [x])


def _converted(dtype: torch.dtype) -> Prepare:
    return lambda value: ops.to_dtype(value, dtype)


@lower("sum.default", "sum.dim_IntList", kind="sum")
@lower("prod.default", "prod.dim_int", kind="prod")
def total(
    builder: Builder, out: Result, x: Tensor, dims: Dims = None, keepdim: bool = False, *, kind: str, **options: Any
) -> Tensor:
    return reduced(builder, out, x, dims, keepdim, kind, _converted(compute_dtype(out.dtype)))


@lower("amax.default", "max.default", kind="max")
@lower("amin.default", "min.default", kind="min")
@lower("argmax.default", kind="argmax")
@lower("argmin.default", kind="argmin")
def extreme(builder: Builder, out: Result, x: Tensor, dims: Dims = None, keepdim: bool = False, *, kind: str) -> Tensor:
    return extremes(builder, [out], x, dims, keepdim, kinds=(kind,))[0]


@lower("max.dim", kinds=("max", "argmax"))
@lower("min.dim", kinds=("min", "argmin"))
@lower("aminmax.default", kinds=("min", "max"))
def extremes(
    builder: Builder, out: list[Result], x: Tensor, dim: Dims = None, keepdim: bool = False, *, kinds: tuple[str, ...]
) -> list[Tensor]:
    leave_if(any(size.value == 0 for size in x.sizes), "nothing to choose from: the library raises the right error")
    convert = _converted(compute_dtype(x.dtype))
    return [reduced(builder, r, x, dim, keepdim, kind, convert) for r, kind in zip(out, kinds)]


@lower("any.default", "any.dim", "any.dims", kind="any")
@lower("all.default", "all.dim", "all.dims", kind="all")
def truth(builder: Builder, out: Result, x: Tensor, dims: Dims = None, keepdim: bool = False, *, kind: str) -> Tensor:
    leave_if(out.dtype is not torch.bool, "the truth of bytes is left to the library")
    return reduced(builder, out, x, dims, keepdim, kind, _converted(torch.bool))
