"""Where values belong in sorted numbers: a binary search whose steps are written out, because their number is known."""

from __future__ import annotations

from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype, is_tensor, number, require_supported
from stoker.lower.registry import LeftToLibrary, Result, leave_if, lower

MOST_STEPS = 20


def _searched(builder: Builder, out: Result, sorted_: Tensor, values: Any, right: bool) -> Tensor:
    """For each value, how many of its row's numbers are less (or not greater, if `right`)."""
    leave_if(not sorted_.sizes, "there is no row: the library raises the right error")
    length = sorted_.sizes[-1].value
    if length is None or length.bit_length() > MOST_STEPS:
        raise LeftToLibrary("a row whose length depends on symbols, or is large")
    given = [values] if is_tensor(values) else []
    dtypes = [sorted_.dtype, *(v.dtype for v in given)]
    require_supported(*dtypes)
    leave_if(len(set(dtypes)) > 1 or (not given and not sorted_.dtype.is_floating_point), "numbers of different types")
    row, dtype = builder.store(sorted_), compute_dtype(sorted_.dtype)
    name = "gt" if right else "ge"

    def element(at: Index) -> LoopValue:
        value = ops.to_dtype(values.at(at) if given else number(values, sorted_.dtype), dtype)
        lead, found = at[: len(sorted_.sizes) - 1], number(0, torch.int64)
        for step in (1 << bit for bit in reversed(range(length.bit_length()))):
            further = ops.add(found, number(step, torch.int64))
            exists = ops.le(further, number(length, torch.int64))
            last = ops.minimum(ops.add(found, number(step - 1, torch.int64)), number(max(length - 1, 0), torch.int64))
            there = ops.to_dtype(row.at((*lead, ops.indirect(last, sorted_.sizes[-1]))), dtype)
            before = ops.bitwise_not(getattr(ops, name)(there, value))
            found = ops.where(ops.bitwise_and(exists, before), further, found)
        return ops.to_dtype(found, out.dtype)

    return builder.compute(out, element, [row, *given], cost=8 * max(length.bit_length(), 1))


@lower("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    builder: Builder, out: Result, values: Any, bounds: Tensor, *, right: bool = False, **options: Any
) -> Tensor:
    return _searched(builder, out, bounds, values, right)


@lower("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    builder: Builder,
    out: Result,
    sorted_: Tensor,
    values: Any,
    *,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
    **options: Any,
) -> Tensor:
    leave_if(sorter is not None, "numbers in an order that is given apart")
    return _searched(builder, out, sorted_, values, right or side == "right")
