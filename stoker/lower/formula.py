"""Operators that are one function of the elements of their operands, rounded once as eager's kernels round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import divider, elementwise, tensors_among
from stoker.lower.registry import LeftToLibrary, Result, lower


def like(value: LoopValue, number: float) -> Any:
    """A number, in the type of a value."""
    return ops.constant(number, value.dtype)


def formula(
    *names: str, cost: int = 4, last: Any = None, floating: bool = False, rounded: bool = False, divides: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of loop values for operators whose arguments are all operands; `last` stands for the last if it is
    not given. One that is `floating` leaves other types to the library; numbers may be `rounded` to the result's type
    before. One that `divides` by numbers is given first how the device does."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def lowering(builder: Builder, out: Result, *operands: Any) -> Tensor:
            if floating:
                refuse_other_types(out, tensors_among(operands))
            given = operands if last is None or len(operands) > 1 else (*operands, last)
            computed = functools.partial(function, divider(builder, out.device)) if divides else function
            return elementwise(builder, out, given, computed, cost=cost, scalar_dtype=out.dtype if rounded else None)

        lower(*names)(lowering)
        return function

    return register


def refuse_other_types(out: Result, tensors: Sequence[Tensor]) -> None:
    """A function of floating numbers that are all of the result's type."""
    if not out.dtype.is_floating_point or any(t.dtype is not out.dtype for t in tensors):
        raise LeftToLibrary("its operands are not of one floating type")
