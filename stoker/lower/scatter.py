"""Writing to computed places: a copy of the tensor, then loops over the values that store into it or combine with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import Layout, Sizes
from stoker.loop.view import Index, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.index import counted_from_0
from stoker.lower.operand import broadcast_index, compute_dtype, elementwise, is_tensor, number, require_supported
from stoker.lower.pieces import neutral
from stoker.lower.registry import Bound, CannotLower, LeftToLibrary, Numbers, Operand, Result, Size, leave_if, lower
from stoker.lower.view import diagonal, dimension
from stoker.shape.expr import Expr, as_expr, constant
from stoker.shape.symnode import expr_of

_HALF = (torch.float16, torch.bfloat16)


def _chosen(places: Tensor, at: Index, size: Expr) -> Expr:
    return ops.indirect(ops.to_dtype(places.at(at), torch.int64), size)


def _value(source: Any, at: Index, sizes: Sizes, dtype: torch.dtype) -> Any:
    if not is_tensor(source):
        return number(source, dtype)
    return source.at(broadcast_index(at, source.sizes, sizes))


def _along(
    builder: Builder,
    out: Result,
    x: Tensor,
    dim: int,
    places: Tensor,
    source: Any,
    combine: str,
    start: Operand | None = None,
) -> Tensor:
    """result[..., places[i], ...] = source[i], for each i in the indices' own sizes. Places begin as `start`, if there is one."""
    require_supported(out.dtype, *([source.dtype] if is_tensor(source) else []))
    leave_if(not x.sizes or len(places.sizes) != len(x.sizes), "a tensor without dimensions")
    if is_tensor(source) and len(source.sizes) != len(x.sizes):
        raise LeftToLibrary("a source of another rank, which eager takes where there is no place")
    dim = dimension(dim, len(x.sizes))
    require_combine(builder, _accumulating(out, combine), combine)
    base = builder.copy(x, _accumulating(out, combine))

    def place(at: Index) -> Index:
        return (*at[:dim], counted_from_0(places.at(at), x.sizes[dim], "element"), *at[dim + 1 :])

    def value(at: Index) -> LoopValue:
        return source.at(at) if is_tensor(source) else number(source, out.dtype)

    if start is not None:
        builder.scatter(base, places.sizes, place, lambda at: number(start, base.dtype), "set")
    builder.scatter(base, places.sizes, place, value, combine)
    return _rounded(builder, base, out)


def require_combine(builder: Builder, out: Result, combine: str) -> None:
    """Can the target combine with memory of this type so?"""
    target = builder.target(out.device)
    if combine != "set" and (combine not in target.combines or out.dtype not in target.combined_dtypes):
        raise LeftToLibrary("sums in places that data chooses, of a type that the device cannot add to memory")


def _accumulating(out: Result, combine: str) -> Result:
    """Sums of half precision are made in float32, and rounded once, as eager's are."""
    return replace(out, dtype=compute_dtype(out.dtype)) if combine in ("add", "mul") else out


def _rounded(builder: Builder, base: Stored, out: Result) -> Tensor:
    if base.dtype is out.dtype:
        return base
    return builder.compute(out, lambda at: ops.to_dtype(base.at(at), out.dtype), [base])


@lower("scatter.src", combine="set")
@lower("scatter_add.default", combine="add")
def scatter(
    builder: Builder, out: Result, x: Tensor, dim: int, places: Tensor, source: Tensor, *, combine: str
) -> Tensor:
    return _along(builder, out, x, dim, places, source, combine)


_REDUCTIONS = {
    "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min", "mean": "add",
}  # fmt: skip


@lower("scatter.reduce", "scatter_reduce.two")
def scatter_reduce(
    builder: Builder,
    out: Result,
    x: Tensor,
    dim: int,
    places: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Combined with what is there, or (`include_self` is false) in its place."""
    combine = _REDUCTIONS[reduce]
    start = None if include_self else neutral(combine, out.dtype)
    total = _along(builder, out, x, dim, places, source, combine, start)
    if reduce != "mean":
        return total
    leave_if(not out.dtype.is_floating_point, "means of whole numbers")
    ones = builder.compute(out, lambda at: number(1, out.dtype), cost=0)
    wide = replace(out, dtype=compute_dtype(out.dtype))
    count = _along(builder, wide, ones, dim, places, 1, "add", None if include_self else 0)
    return elementwise(builder, out, [total, count], lambda a, b: ops.div(a, b), cost=4)


def _rows(x: Tensor, dim: int, places: Tensor) -> tuple[int, Sizes]:
    """The dimension, and the sizes of what the indices along it choose."""
    leave_if(not x.sizes or len(places.sizes) > 1, "a tensor without dimensions")
    dim = dimension(dim, len(x.sizes))
    count = places.sizes[0] if places.sizes else constant(1)
    return dim, (*x.sizes[:dim], count, *x.sizes[dim + 1 :])


@lower("index_add.default", combine="add")
@lower("index_copy.default", combine="set")
@lower("index_fill.int_Scalar", "index_fill.int_Tensor", combine="set", wraps=True)
def index_rows(
    builder: Builder,
    out: Result,
    x: Tensor,
    dim: int,
    places: Tensor,
    source: Any,
    *,
    alpha: Operand = 1,
    combine: str,
    wraps: bool = False,
) -> Tensor:
    """Whole slices, chosen by a vector of indices, which may count from the end where it `wraps`."""
    require_supported(out.dtype, *([source.dtype] if is_tensor(source) else []))
    dim, sizes = _rows(x, dim, places)
    leave_if(is_tensor(source) and source.sizes and len(source.sizes) != len(sizes), "values of another rank")
    leave_if(alpha != 1 and out.dtype in (torch.bool, *_HALF), "a product that is rounded")
    kind = "element" if combine == "add" else "index"
    require_combine(builder, _accumulating(out, combine), combine)
    base = builder.copy(x, _accumulating(out, combine))

    def place(at: Index) -> Index:
        chosen = (at[dim],) if places.sizes else ()
        size = x.sizes[dim]
        found = _chosen(places, chosen, size) if wraps else counted_from_0(places.at(chosen), size, kind)
        return (*at[:dim], found, *at[dim + 1 :])

    def value(at: Index) -> LoopValue:
        made = ops.to_dtype(_value(source, at, sizes, out.dtype), out.dtype)
        return made if alpha == 1 else ops.mul(made, number(alpha, out.dtype))

    builder.scatter(base, sizes, place, value, combine)
    return _rounded(builder, base, out)


@lower("index_put.default", "_unsafe_index_put.default")
def index_put(
    builder: Builder, out: Result, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor:
    """x[indices] = values, or += values."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given or any(i.dtype not in (torch.int64, torch.int32) for _, i in given):
        raise LeftToLibrary("a mask chooses a number of elements that depends on data")
    require_supported(out.dtype, values.dtype)
    dims = [d for d, _ in given]
    leave_if(dims != list(range(dims[0], dims[0] + len(dims))), "indices apart from each other")
    shape = _broadcast([i.sizes for _, i in given])
    first, rank = dims[0], len(shape)
    sizes = (*x.sizes[:first], *shape, *x.sizes[first + len(dims) :])
    leave_if(len(values.sizes) > len(sizes), "values of a higher rank than the places")
    require_combine(builder, out, "add" if accumulate else "set")
    base = builder.copy(x, out)

    def place(at: Index) -> Index:
        where = at[first : first + rank]
        found = [_chosen(i, broadcast_index(where, i.sizes, shape), x.sizes[d]) for d, i in given]
        return (*at[:first], *found, *at[first + rank :])

    builder.scatter(base, sizes, place, lambda at: _value(values, at, sizes, out.dtype), "add" if accumulate else "set")
    return base


def _broadcast(shapes: list[Sizes]) -> Sizes:
    rank = max(map(len, shapes))
    result = [constant(1)] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if size.value != 1:
                result[d] = size
    return tuple(result)


@lower("diagonal_scatter.default")
def diagonal_scatter(
    builder: Builder, out: Result, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    require_supported(out.dtype, source.dtype)
    base = builder.copy(x, out)
    target = diagonal(builder, replace(out, sizes=source.sizes), base, offset, dim1, dim2)
    assert isinstance(target, Stored), "a view of memory"
    builder.write(source, target, "set")
    return base


def _in_eagers_memory(builder: Builder, x: Tensor) -> tuple[Stored, Expr]:
    """The tensor in memory that lies as eager's does, and where eager's memory begins, seen from it."""
    fake = builder.usage.operands[0].meta
    stored = builder.store(x)
    strides = tuple(map(expr_of, fake.strides))
    if any(a is not b and s.value != 1 for a, b, s in zip(stored.strides, strides, stored.sizes)):
        raise CannotLower("as_strided reads a tensor whose memory lies in another way than eager's")
    return stored, stored.offset - expr_of(fake.offset)


@lower("as_strided.default")
def as_strided(
    builder: Builder, out: Result, x: Tensor, size: Numbers, stride: Sequence[Size], offset: Bound = None
) -> Tensor:
    stored, start = _in_eagers_memory(builder, x)
    at = stored.offset if offset is None else start + as_expr(offset)
    strides = tuple(as_expr(s) for s in stride)
    layout = builder.program.layouts[stored.buffer]
    behind = at + Layout(layout.dtype, layout.device, out.sizes, strides).reach - layout.reach
    if stored.buffer not in builder.program.inputs and not (behind.is_constant and behind.offset <= 0):
        raise CannotLower("as_strided reads memory around a part of a tensor, of which the part alone may be there")
    return Stored(stored.buffer, stored.dtype, stored.device, out.sizes, strides, at)


@lower("as_strided_scatter.default")
def as_strided_scatter(
    builder: Builder,
    out: Result,
    x: Tensor,
    source: Tensor,
    size: Numbers,
    stride: Sequence[Size],
    offset: Bound = None,
) -> Tensor:
    require_supported(out.dtype, source.dtype)
    fake = builder.usage.operands[0].meta
    at = as_expr(0) if offset is None else as_expr(offset) - expr_of(fake.offset)
    leave_if(tuple(map(expr_of, fake.strides)) != out.strides, "its result lies in another way than it does")
    base = builder.copy(x, out)
    strides = tuple(as_expr(s) for s in stride)
    builder.write(source, Stored(base.buffer, base.dtype, base.device, source.sizes, strides, at), "set")
    return base
