"""Elementwise operators: tables where the loop operation has the operator's meaning, functions where it takes more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.fake.promote import result_dtype
from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.op import ELEMENTWISE
from stoker.loop.target import LOOP_DTYPES
from stoker.loop.view import Computed, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import (
    compute_dtype,
    divider,
    elementwise,
    is_tensor,
    loader,
    number,
    refuse_division_by_zero,
    refuse_rounded_quotient,
    require_supported,
    tensors_among,
)
from stoker.lower.registry import LeftToLibrary, Numbers, Operand, Result, Size, find, leave_if, lower

_UNARY = """
neg abs sign floor ceil round trunc sqrt rsqrt reciprocal relu exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid
"""
_BINARY = """
remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar maximum.default minimum.default atan2.default
"""
_COMPARE = "eq ne lt le gt ge"
_INTEGRAL_IDENTITY = ("floor", "ceil", "round", "trunc")


def _operation(name: str) -> Callable[..., Any]:
    """A loop operation, looked up when the body runs."""
    return lambda *values: getattr(ops, name)(*values)


def _unary(builder: Builder, out: Result, x: Tensor, *, name: str) -> Tensor:
    if name in _INTEGRAL_IDENTITY and not out.dtype.is_floating_point:
        return elementwise(builder, out, [x], lambda value: value)
    return elementwise(builder, out, [x], _operation(name), cost=ELEMENTWISE[name].cost)


def _binary(builder: Builder, out: Result, a: Operand, b: Operand, *, name: str) -> Tensor:
    if name in ("remainder", "fmod"):
        refuse_division_by_zero(out, b)
    return elementwise(builder, out, [a, b], _operation(name), None, ELEMENTWISE[name].cost, out.dtype)


def _comparison(builder: Builder, out: Result, a: Operand, b: Operand, *, name: str) -> Tensor:
    common = result_dtype(builder.usage.operands[:2])
    return elementwise(builder, out, [a, b], _operation(name), compute_dtype(common), scalar_dtype=common)


def _logical(builder: Builder, out: Result, *operands: Any, name: str) -> Tensor:
    return elementwise(builder, out, operands, _operation(name), torch.bool)


def _bits(builder: Builder, out: Result, *operands: Operand, name: str) -> Tensor:
    if out.dtype.is_floating_point:
        raise LeftToLibrary("numbers that are not whole have no bits: the library raises the right error")
    return elementwise(builder, out, operands, _operation(name), None, ELEMENTWISE[name].cost, out.dtype)


for _name in _UNARY.split():
    lower(f"{_name}.default", name=_name)(_unary)
for _name in _BINARY.split():
    lower(_name, name=_name.split(".")[0])(_binary)
for _name in _COMPARE.split():
    lower(f"{_name}.Tensor", f"{_name}.Scalar", name=_name)(_comparison)
for _name in ("and", "or", "xor"):
    lower(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", name=f"bitwise_{_name}")(_bits)
    lower(f"logical_{_name}.default", name=f"bitwise_{_name}")(_logical)
lower("bitwise_not.default", name="bitwise_not")(_bits)
lower("logical_not.default", name="bitwise_not")(_logical)


@lower("add.Tensor", "add.Scalar", name="add")
@lower("sub.Tensor", "sub.Scalar", name="sub")
def add(builder: Builder, out: Result, a: Operand, b: Operand, alpha: Operand = 1, *, name: str) -> Computed:
    if out.dtype is torch.bool:
        leave_if(not isinstance(alpha, int), "whether truth values are added depends on a number that varies")
        return elementwise(builder, out, [a, b], _operation("bitwise_or") if alpha else lambda x, y: x)
    operation = _operation(name)
    if alpha == 1:
        return elementwise(builder, out, [a, b], operation, scalar_dtype=out.dtype)

    rounds = builder.target(out.device).rounds_products and not builder.wide

    def scaled(x: LoopValue, y: LoopValue) -> LoopValue:
        product = ops.mul(y, ops.to_dtype(number(alpha, out.dtype), y.dtype))
        return operation(x, ops.to_dtype(ops.to_dtype(product, out.dtype), y.dtype) if rounds else product)

    return elementwise(builder, out, [a, b], scaled, cost=2, scalar_dtype=out.dtype)


@lower("mul.Tensor", "mul.Scalar")
def mul(builder: Builder, out: Result, a: Operand, b: Operand) -> Computed:
    if out.dtype is torch.bool:
        return elementwise(builder, out, [a, b], _operation("bitwise_and"))
    return elementwise(builder, out, [a, b], _operation("mul"))


@lower("div.Tensor", "div.Scalar")
def divide(builder: Builder, out: Result, a: Operand, b: Operand) -> Computed:
    """A quotient, as eager's kernels for the device compute it."""
    inverse = builder.target(out.device).inverts_numbers and _is_number(b, out)
    function = divider(builder, out.device) if inverse else _operation("div")
    return elementwise(builder, out, [a, b], function, cost=2 if inverse else ELEMENTWISE["div"].cost)


def _is_number(operand: Operand, out: Result) -> bool:
    """A number of the program, or one in the processor's memory that another device computes with."""
    if isinstance(operand, (Stored, Computed)):
        return not operand.sizes and operand.device.type == "cpu" and out.device.type != "cpu"
    return True


_ROUNDED = {"floor": "floor_divide", "trunc": "truncate_divide"}


@lower("div.Tensor_mode", "div.Scalar_mode")
def divide_rounded(builder: Builder, out: Result, a: Operand, b: Operand, rounding_mode: str | None = None) -> Computed:
    if rounding_mode is None:
        return divide(builder, out, a, b)
    refuse_rounded_quotient(out, b)
    return elementwise(builder, out, [a, b], _operation(_ROUNDED[rounding_mode]), cost=8)


_POWERS: dict[float, Callable[[LoopValue], LoopValue]] = {
    1: lambda x: x,
    2: lambda x: ops.mul(x, x),
    3: lambda x: ops.mul(ops.mul(x, x), x),
    0.5: lambda x: ops.sqrt(x),
    -0.5: lambda x: ops.rsqrt(x),
    -1: lambda x: ops.reciprocal(x),
    -2: lambda x: ops.reciprocal(ops.mul(x, x)),
}
"""Exponents that eager computes without a power function; roots of float16 it does not."""


def _in_two_steps(exponent: float, dtype: torch.dtype) -> Callable[[LoopValue], LoopValue]:
    """A power of half precision, rounded after each multiplication as eager does."""

    def function(x: LoopValue) -> LoopValue:
        square = ops.to_dtype(ops.to_dtype(ops.mul(x, x), dtype), x.dtype)
        return ops.mul(square, x) if exponent == 3 else ops.reciprocal(square)

    return function


@lower("pow.Tensor_Scalar")
def power_of_number(builder: Builder, out: Result, x: Tensor, exponent: Operand) -> Computed:
    special = _POWERS.get(exponent) if isinstance(exponent, (int, float)) else None
    if exponent in (3, -2) and compute_dtype(out.dtype) is not out.dtype:
        special = _in_two_steps(exponent, out.dtype)
    if exponent in (0.5, -0.5) and out.dtype is torch.float16:
        special = None
    if special is not None and (out.dtype.is_floating_point or exponent in (1, 2, 3)):
        return elementwise(builder, out, [x], special, cost=4)
    return power(builder, out, x, exponent)


@lower("pow.Tensor_Tensor", "pow.Scalar")
def power(builder: Builder, out: Result, a: Operand, b: Operand) -> Computed:
    leave_if(not out.dtype.is_floating_point, "integer powers are left to the library")
    return elementwise(builder, out, [a, b], _operation("pow"), cost=40, scalar_dtype=out.dtype)


@lower("clamp.default", "clamp.Tensor")
def clamp(
    builder: Builder, out: Result, x: Tensor, low: Operand | None = None, high: Operand | None = None
) -> Computed:
    bounds = [b for b in (low, high) if b is not None]
    if any(isinstance(b, float) and b != b for b in bounds):
        raise LeftToLibrary("what a bound that is no number means differs between versions of torch")

    def function(value: Any, *limits: Any) -> Any:
        given = iter(limits)
        if low is not None:
            value = _limited(ops.maximum, value, next(given), low)
        return _limited(ops.minimum, value, next(given), high) if high is not None else value

    return elementwise(builder, out, [x, *bounds], function, cost=2)


def _limited(choose: Callable[..., Any], value: Any, limit: Any, bound: Any) -> Any:
    """Of two zeros the second is chosen: eager keeps the value before a number, and takes the element of a tensor."""
    return choose(value, limit) if is_tensor(bound) else choose(limit, value)


@lower("where.self")
def where(builder: Builder, out: Result, condition: Tensor, a: Operand, b: Operand) -> Computed:
    tensors = tensors_among([condition, a, b])
    require_supported(out.dtype, *(t.dtype for t in tensors))
    test = loader(condition, out.sizes, torch.bool)
    yes, no = loader(a, out.sizes, out.dtype), loader(b, out.sizes, out.dtype)
    return builder.compute(out, lambda index: ops.where(test(index), yes(index), no(index)), tensors)


@lower("isnan.default", name="isnan")
@lower("isinf.default", name="isinf")
def classify(builder: Builder, out: Result, x: Tensor, *, name: str) -> Computed:
    leave_if(x.dtype.is_complex, f"{x.dtype} is left to the library")
    if not x.dtype.is_floating_point:
        return elementwise(builder, out, [], lambda: ops.constant(False, torch.bool))
    return elementwise(builder, out, [x], _operation(name), compute_dtype(x.dtype))


@lower("_to_copy.default", "clone.default", "lift_fresh_copy.default")
def copy(builder: Builder, out: Result, x: Tensor, **options: Any) -> Tensor:
    stored = builder.target(out.device).stored_dtypes & {out.dtype, x.dtype}
    require_supported(*({out.dtype, x.dtype} - stored))
    leave_if(x.device != out.device, "a copy between devices is left to the library")
    if isinstance(x, Stored) and x.dtype is out.dtype and x.strides == out.strides:
        return x  # nobody writes to it; the driver copies outputs that must have memory of their own
    if stored and x.dtype is not out.dtype:  # by way of float32, as eager converts
        wide = torch.float32
        return builder.compute(out, lambda index: ops.to_dtype(ops.to_dtype(x.at(index), wide), out.dtype), [x], cost=8)
    if stored:
        return builder.compute(out, lambda index: x.at(index), [x])
    return elementwise(builder, out, [x], lambda value: value, x.dtype)


@lower("full.default", "full_like.default")
def full(builder: Builder, out: Result, shape_or_like: Any, value: Operand, **options: Any) -> Computed:
    require_supported(out.dtype)
    leave_if(is_tensor(value), "the fill value is a tensor")
    return builder.compute(out, lambda index: number(value, out.dtype), cost=0)


@lower("_efficientzerotensor.default")
def zero_without_memory(builder: Builder, out: Result, size: Numbers, **options: Any) -> Tensor:
    """A tensor of zeros that eager gives no memory; a plan needs some."""
    if out.dtype in LOOP_DTYPES:
        return builder.compute(out, lambda index: number(0, out.dtype), cost=0)
    return builder.call(find("full.default"), (list(out.sizes), 0), {"dtype": out.dtype, "device": out.device}, out)


Number = Size | float


@lower("arange.start_step", "arange.default", "arange.start")
def arange(
    builder: Builder, out: Result, start: Number, end: Number | None = None, step: Number = 1, **options: Any
) -> Computed:
    if end is None:
        start, end = 0, start
    if out.dtype.is_floating_point or isinstance(start, float) or isinstance(step, float):
        raise LeftToLibrary("a range of floats is left to the library")
    return builder.compute(out, lambda index: ops.to_dtype(ops.index(index[0] * step + start, torch.int64), out.dtype))
