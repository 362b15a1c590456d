"""Operands of elementwise operators: tensors of any shape, numbers and symbolic sizes, all seen as functions of an index.

Type promotion and broadcasting happen here, once, for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import Sizes, is_dense
from stoker.loop.target import LOOP_DTYPES
from stoker.loop.view import Computed, Index, Scalar, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.registry import LeftToLibrary, Result, leave_if
from stoker.shape.expr import Expr, constant

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type eager computes in: half precision is widened, and rounded after each operator."""
    return _WIDE.get(dtype, dtype)


def is_tensor(value: Any) -> bool:
    return isinstance(value, (Stored, Computed))


def number(value: Any, dtype: torch.dtype) -> Any:
    """A Python number or a size, as a value of this type."""
    if isinstance(value, Scalar):
        return ops.to_dtype(value.at(()), dtype)
    if isinstance(value, Expr):
        return ops.to_dtype(ops.index(value, torch.int64), dtype)
    leave_if(isinstance(value, complex), "complex numbers are left to the library")
    if dtype is torch.bool:
        return ops.constant(bool(value), dtype)
    return ops.constant(float(value) if dtype.is_floating_point else int(value), dtype)


def broadcast_index(index: Index, sizes: Sizes, out: Sizes) -> Index:
    """The index into an operand that stretches to the sizes of the result."""
    lead, zero = len(out) - len(sizes), constant(0)
    return tuple(
        zero if size.value == 1 and out[lead + d].value != 1 else index[lead + d] for d, size in enumerate(sizes)
    )


def loader(
    operand: Any,
    out: Sizes,
    dtype: torch.dtype,
    scalar_dtype: torch.dtype | None = None,
    half: torch.dtype | None = None,
) -> Callable[[Index], LoopValue]:
    """A function from an index of the result to the operand's element, in the type computed with.

    Numbers and tensors without dimensions are rounded to `scalar_dtype` first, if there is one; whole numbers of other tensors to the half
    precision that they are promoted to.
    """
    if not is_tensor(operand):
        return lambda index: ops.to_dtype(number(operand, scalar_dtype or dtype), dtype)
    if scalar_dtype is not None and not operand.sizes:
        return lambda index: ops.to_dtype(ops.to_dtype(operand.at(()), scalar_dtype), dtype)
    first = half if half is not None and operand.sizes and not operand.dtype.is_floating_point else dtype
    return lambda index: ops.to_dtype(
        ops.to_dtype(operand.at(broadcast_index(index, operand.sizes, out)), first), dtype
    )


def tensors_among(operands: Sequence[Any]) -> list[Tensor]:
    return [o for o in operands if is_tensor(o)]


def require_supported(*dtypes: torch.dtype) -> None:
    for dtype in dtypes:
        leave_if(dtype not in LOOP_DTYPES, f"{dtype} is left to the library")


def _as_operands_lie(builder: Builder, out: Result, tensors: list[Tensor]) -> Result:
    """With strides of the first operand of the result's shape, where strides are free."""
    if builder.free_layout and len(out.sizes) > 2:
        for tensor in tensors:
            if tensor.sizes == out.sizes and is_dense(tensor.sizes, tensor.strides):
                return replace(out, strides=tensor.strides)
    return out


def elementwise(
    builder: Builder,
    out: Result,
    operands: Sequence[Any],
    function: Callable[..., Any],
    compute: torch.dtype | None = None,
    cost: int = 1,
    scalar_dtype: torch.dtype | None = None,
) -> Computed:
    """A tensor of `function` over broadcast operands, computed in one type and rounded to the result's.

    Eager rounds numbers to the tensors' type before most operators, and multiplies and divides by them as they are:
    `scalar_dtype` is the type to round them to.
    """
    compute = compute or compute_dtype(out.dtype)
    tensors = tensors_among(operands)
    require_supported(out.dtype, compute, *(t.dtype for t in tensors))
    half = next((common for common in (out.dtype, scalar_dtype) if common in _WIDE and _WIDE[common] is compute), None)
    loads = [loader(o, out.sizes, compute, scalar_dtype if out.sizes else None, half) for o in operands]
    out = _as_operands_lie(builder, out, tensors)

    def element(index: Index) -> LoopValue:
        return ops.to_dtype(function(*(load(index) for load in loads)), out.dtype)

    return builder.compute(out, element, tensors, cost)


Divider = Callable[[LoopValue, LoopValue], Any]


def divider(builder: Builder, device: torch.device) -> Divider:
    """A quotient by a number, as eager's kernels for the device compute it."""
    if builder.target(device).inverts_numbers:
        return lambda x, y: ops.mul(x, ops.reciprocal(y))
    return lambda x, y: ops.div(x, y)


def refuse_rounded_quotient(out: Result, divisor: Any) -> None:
    """Eager rounds a quotient of half precision by a tensor before it rounds down, and what it computes on the way."""
    leave_if(is_tensor(divisor) and out.dtype in _WIDE, "rounded quotients of half precision are computed in steps")
    refuse_division_by_zero(out, divisor)


def refuse_division_by_zero(out: Result, divisor: Any) -> None:
    """Whole numbers divided by a zero are an error of eager's on the CPU, which the library raises."""
    whole = not out.dtype.is_floating_point and not out.dtype.is_complex
    if whole and out.device.type == "cpu" and not (isinstance(divisor, (int, float)) and divisor):
        raise LeftToLibrary("whole numbers are divided by numbers that may be 0: the library raises the right error")
