"""Elementwise operators that are a few loop operations, rounded once as eager's kernels round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Tensor
from stoker.lower.builder import Builder
from stoker.lower.formula import formula, like
from stoker.lower.operand import compute_dtype, elementwise, number, refuse_rounded_quotient
from stoker.lower.reduce import dimensions, reduced
from stoker.lower.registry import Dims, LeftToLibrary, Operand, Result, leave_if, lower

INFINITY = float("inf")


def _numbers_alone(choose: Callable[..., LoopValue]) -> Callable[..., LoopValue]:
    """An extreme of two, of which one that is no number is passed over."""

    def extreme(a: LoopValue, b: LoopValue) -> LoopValue:
        if not a.dtype.is_floating_point:
            return choose(a, b)
        return ops.where(ops.isnan(a), b, ops.where(ops.isnan(b), a, choose(b, a)))

    return extreme


formula("fmax.default")(_numbers_alone(ops.maximum))
formula("fmin.default")(_numbers_alone(ops.minimum))
formula("copysign.Tensor")(ops.copysign)


@formula("heaviside.default")
def heaviside(x: LoopValue, at_zero: LoopValue) -> LoopValue:
    zero = like(x, 0)
    return ops.where(ops.eq(x, zero), at_zero, ops.to_dtype(ops.gt(x, zero), x.dtype))


@formula("_prelu_kernel.default")
def prelu(x: LoopValue, weight: LoopValue) -> LoopValue:
    return ops.where(ops.gt(x, like(x, 0)), x, ops.mul(weight, x))


@lower("_prelu_kernel_backward.default")
def prelu_backward(builder: Builder, out: list[Result], gradient: Tensor, x: Tensor, weight: Tensor) -> list[Tensor]:
    def positive(v: LoopValue) -> LoopValue:
        return ops.gt(v, like(v, 0))

    return [
        elementwise(
            builder, out[0], [gradient, x, weight], lambda g, v, w: ops.where(positive(v), g, ops.mul(w, g)), cost=3
        ),
        elementwise(
            builder, out[1], [gradient, x], lambda g, v: ops.where(positive(v), like(v, 0), ops.mul(v, g)), cost=3
        ),
    ]


@formula("hardshrink.default", last=0.5)
def hardshrink(x: LoopValue, limit: LoopValue) -> LoopValue:
    return ops.where(ops.bitwise_and(ops.ge(x, ops.neg(limit)), ops.le(x, limit)), like(x, 0), x)


@formula("hardshrink_backward.default", "softshrink_backward.default")
def shrink_backward(gradient: LoopValue, x: LoopValue, limit: LoopValue) -> LoopValue:
    return ops.where(ops.bitwise_and(ops.ge(x, ops.neg(limit)), ops.le(x, limit)), like(x, 0), gradient)


@formula("softshrink.default", last=0.5)
def softshrink(x: LoopValue, limit: LoopValue) -> LoopValue:
    above, below = ops.gt(x, limit), ops.lt(x, ops.neg(limit))
    rest = ops.mul(x, like(x, 0))  # not 0: what is no number stays so
    return ops.where(above, ops.sub(x, limit), ops.where(below, ops.add(x, limit), rest))


@formula("logaddexp.default", cost=50, floating=True)
def logaddexp(a: LoopValue, b: LoopValue) -> LoopValue:
    return _more_than_larger(a, b, lambda away: ops.log1p(ops.exp(away)))


@formula("logaddexp2.default", cost=50, floating=True)
def logaddexp2(a: LoopValue, b: LoopValue) -> LoopValue:
    return _more_than_larger(a, b, lambda away: ops.mul(ops.log1p(ops.exp2(away)), like(a, 1 / math.log(2))))


def _more_than_larger(a: LoopValue, b: LoopValue, more: Callable[[LoopValue], LoopValue]) -> LoopValue:
    """The larger of two and a function of how far away the other is; an infinity that both are stays."""
    same = ops.bitwise_and(ops.eq(a, b), ops.isinf(a))
    return ops.where(same, a, ops.add(ops.maximum(a, b), more(ops.neg(ops.abs(ops.sub(a, b))))))


def _is(number: float) -> Callable[[LoopValue], LoopValue]:
    return lambda x: ops.eq(x, like(x, number)) if x.dtype.is_floating_point else ops.constant(False, torch.bool)


def _is_negative(x: LoopValue) -> LoopValue:
    if not x.dtype.is_floating_point:
        return ops.lt(x, like(x, 0))
    return ops.lt(ops.copysign(like(x, 1.0), x), like(x, 0.0))


@lower("isposinf.default", question=_is(INFINITY))
@lower("isneginf.default", question=_is(-INFINITY))
@lower("signbit.default", question=_is_negative)
def ask(builder: Builder, out: Result, x: Tensor, *, question: Callable[[LoopValue], LoopValue]) -> Tensor:
    return elementwise(builder, out, [x], question, compute_dtype(x.dtype))


@lower("nan_to_num.default")
def nan_to_num(builder: Builder, out: Result, x: Tensor, *numbers: float | None) -> Tensor:
    nan, high, low = (*numbers, None, None, None)[:3]
    if not out.dtype.is_floating_point:
        return elementwise(builder, out, [x], lambda v: v)
    limits = torch.finfo(out.dtype)
    top, bottom = limits.max if high is None else high, limits.min if low is None else low

    def function(v: LoopValue) -> LoopValue:
        v = ops.where(ops.isnan(v), like(v, 0.0 if nan is None else float(nan)), v)
        v = ops.where(ops.eq(v, like(v, INFINITY)), like(v, float(top)), v)
        return ops.where(ops.eq(v, like(v, -INFINITY)), like(v, float(bottom)), v)

    return elementwise(builder, out, [x], function, cost=6)


@lower("native_dropout_backward.default")
def dropout_backward(builder: Builder, out: Result, gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    dtype = compute_dtype(out.dtype)

    def function(g: LoopValue, kept: LoopValue) -> LoopValue:
        return ops.mul(g, ops.mul(kept, number(scale, dtype)))

    return elementwise(builder, out, [gradient, mask], function, dtype)


_OVERLOADS = ("Tensor", "Scalar", "Tensor_Scalar")


@lower(*(f"{name}.{o}" for name in ("bitwise_left_shift", "__lshift__") for o in _OVERLOADS), name="left_shift")
@lower(*(f"{name}.{o}" for name in ("bitwise_right_shift", "__rshift__") for o in _OVERLOADS), name="right_shift")
def shift(builder: Builder, out: Result, a: Operand, b: Operand, *, name: str) -> Tensor:
    leave_if(out.dtype.is_floating_point or out.dtype is torch.bool, "shifts of numbers that are not whole")
    return elementwise(builder, out, [a, b], lambda x, y: getattr(ops, name)(x, y))


@lower("floor_divide.default")
def floor_divide(builder: Builder, out: Result, a: Operand, b: Operand) -> Tensor:
    refuse_rounded_quotient(out, b)
    return elementwise(builder, out, [a, b], lambda x, y: ops.floor_divide(x, y), cost=8)


@lower("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(builder: Builder, out: Result, x: Tensor, dims: Dims = None) -> Tensor:
    return reduced(
        builder, out, x, dims, False, "sum", lambda v: ops.to_dtype(ops.to_dtype(v, torch.bool), torch.int64)
    )


@lower("nansum.default")
def nansum(
    builder: Builder, out: Result, x: Tensor, dims: Dims = None, keepdim: bool = False, **options: Any
) -> Tensor:
    def prepare(v: LoopValue) -> LoopValue:
        v = ops.to_dtype(v, compute_dtype(out.dtype))
        return ops.where(ops.isnan(v), like(v, 0.0), v) if v.dtype.is_floating_point else v

    return reduced(builder, out, x, dims, keepdim, "sum", prepare)


_NORMS: dict[float, tuple[str, Callable[[LoopValue], LoopValue]]] = {
    0: ("sum", lambda v: ops.to_dtype(ops.ne(v, like(v, 0.0)), v.dtype)),
    1: ("sum", ops.abs),
    INFINITY: ("max", ops.abs),
    -INFINITY: ("min", ops.abs),
}
"""By order: how elements are combined, and what is of each."""


@lower("linalg_vector_norm.default", "norm.ScalarOpt_dim")
def norm(
    builder: Builder, out: Result, x: Tensor, order: Any = 2, dims: Dims = None, keepdim: bool = False, **options: Any
) -> Tensor:
    if not out.dtype.is_floating_point or not x.dtype.is_floating_point or any(s.value == 0 for s in x.sizes):
        raise LeftToLibrary("a norm that the library knows better")
    dtype = compute_dtype(out.dtype)
    wide = Result(dtype, out.device, out.sizes, out.strides)
    if order != 0 and all(x.sizes[d].value == 1 for d in dimensions(x, dims)):
        order = 1  # of one number eager takes no squares, which may be too large

    def total(kind: str, prepare: Callable[[LoopValue], LoopValue]) -> Any:
        return reduced(builder, wide, x, dims, keepdim, kind, lambda v: prepare(ops.to_dtype(v, dtype)))

    if order in (2, None):
        squares = total("sum", lambda v: ops.mul(v, v))
        return elementwise(builder, out, [squares], lambda v: ops.sqrt(v), cost=4)
    leave_if(order not in _NORMS, "a norm of an uncommon order")
    return elementwise(builder, out, [total(*_NORMS[order])], lambda v: v)
