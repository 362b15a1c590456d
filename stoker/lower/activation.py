"""Operators lowered whole although they could be taken apart: loops have cheaper functions than ATen for what they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import contiguous
from stoker.loop.op import ELEMENTWISE
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype, elementwise, require_supported
from stoker.lower.reduce import reduced
from stoker.lower.registry import Result, leave_if, lower
from stoker.lower.view import dimension
from stoker.shape.expr import constant

_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def _scaled(value: Any, factor: float) -> Any:
    return ops.mul(value, ops.constant(factor, value.dtype))


def _more(value: Any, number: float) -> Any:
    return ops.add(value, ops.constant(number, value.dtype))


def _tanh_cdf(x: LoopValue) -> LoopValue:
    """The hyperbolic stand-in for the normal distribution below x."""
    argument = _scaled(ops.mul(x, _more(_scaled(ops.mul(x, x), _TANH_CUBE), 1.0)), _TANH_SCALE)
    return _scaled(_more(ops.tanh(argument), 1.0), 0.5)


def _tanh_gelu(x: LoopValue) -> LoopValue:
    return ops.mul(x, _tanh_cdf(x))


def _normal_gelu(x: LoopValue, infinite: bool) -> LoopValue:
    """x times the distribution below it, with the sign of x where nothing is left. Infinity is itself, or no number."""
    if x.dtype is torch.float64:
        return ops.mul(_scaled(x, 0.5), _more(ops.erf(_scaled(x, math.sqrt(0.5))), 1.0))
    tail = ops.normal_tail(x)
    lacking = ops.mul(x, tail)
    above = ops.mul(x, _more(ops.neg(tail), 1.0)) if infinite else ops.sub(x, lacking)
    return ops.where(ops.le(x, ops.constant(0.0, x.dtype)), lacking, above)


@lower("gelu.default")
def gelu(builder: Builder, out: Result, x: Tensor, *, approximate: str = "none") -> Tensor:
    """Eager's library for the processor makes no number of infinity, but in float16, which it leaves to ATen."""
    infinite = out.dtype is torch.float16 or out.device.type != "cpu"
    function = _tanh_gelu if approximate == "tanh" else lambda value: _normal_gelu(value, infinite)
    return elementwise(builder, out, [x], function, cost=ELEMENTWISE["normal_tail"].cost + 3)


@lower("gelu_backward.default")
def gelu_backward(builder: Builder, out: Result, gradient: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    slope = _tanh_slope if approximate == "tanh" else _normal_slope
    return elementwise(builder, out, [gradient, x], lambda g, v: ops.mul(g, slope(v)), cost=50)


def _normal_slope(x: LoopValue) -> LoopValue:
    density = _scaled(ops.decay(_scaled(ops.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    tail = ops.normal_tail(x)
    negative = ops.lt(x, ops.constant(0.0, x.dtype))
    below = ops.where(negative, tail, _more(ops.neg(tail), 1.0))
    return ops.add(below, ops.mul(x, density))


def _tanh_slope(x: LoopValue) -> LoopValue:
    below = _tanh_cdf(x)
    inner = _scaled(_more(_scaled(ops.mul(x, x), 3 * _TANH_CUBE), 1.0), 2 * _TANH_SCALE)
    return ops.add(below, ops.mul(ops.mul(x, inner), ops.mul(below, _more(ops.neg(below), 1.0))))


class _Row:
    """What softmax and its logarithm share: the sizes of a row's statistics, and x less its largest in the row."""

    def __init__(self, builder: Builder, out: Result, x: Tensor, dim: int) -> None:
        leave_if(any(size.value == 0 for size in x.sizes) or not x.sizes, "there is nothing to normalize")
        require_supported(out.dtype, x.dtype)
        self.builder, self.at = builder, dimension(dim, len(x.sizes))
        wide = compute_dtype(x.dtype)
        self.full = Result(wide, out.device, out.sizes, out.strides)
        kept = tuple(constant(1) if d == self.at else s for d, s in enumerate(x.sizes))
        self.one = Result(wide, out.device, kept, contiguous(kept))
        top = reduced(builder, self.one, x, [self.at], True, "max", lambda v: ops.to_dtype(v, wide))
        self.less = builder.compute(
            self.full, lambda i: ops.sub(ops.to_dtype(x.at(i), wide), self.of(top, i)), [x, top]
        )

    def of(self, statistic: Tensor, index: Index) -> Any:
        """The statistic of an element's row."""
        return statistic.at(tuple(constant(0) if d == self.at else i for d, i in enumerate(index)))

    def raised(self) -> Tensor:
        cost = ELEMENTWISE["decay"].cost
        return self.builder.compute(self.full, lambda i: ops.decay(self.less.at(i)), [self.less], cost)

    def total(self, of: Tensor, then: Callable[[LoopValue], LoopValue]) -> Tensor:
        """A function of the sum of each row."""
        sums = reduced(self.builder, self.one, of, [self.at], True, "sum", lambda v: v)
        return self.builder.compute(self.one, lambda i: then(sums.at(i)), [sums])


@lower("_softmax.default")
def softmax(builder: Builder, out: Result, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    row = _Row(builder, out, x, dim)
    raised = builder.store(row.raised())
    share = row.total(raised, lambda v: ops.reciprocal(v))
    return builder.compute(
        out, lambda i: ops.to_dtype(ops.mul(raised.at(i), row.of(share, i)), out.dtype), [raised, share]
    )


@lower("_log_softmax.default")
def log_softmax(builder: Builder, out: Result, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    row = _Row(builder, out, x, dim)
    log = row.total(row.raised(), lambda v: ops.log(v))
    return builder.compute(
        out, lambda i: ops.to_dtype(ops.sub(row.less.at(i), row.of(log, i)), out.dtype), [row.less, log]
    )
