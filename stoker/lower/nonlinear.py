"""Activations and their gradients, each as one formula: taken apart, one in a model is up to nine operators to trace, to cut and to lower.

What they compute is what `stoker.decompose.activation` says, step by step (tests/stages/test_nonlinear.py).
"""

from __future__ import annotations

from typing import Any

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Tensor
from stoker.lower.builder import Builder
from stoker.lower.formula import formula, like, refuse_other_types
from stoker.lower.operand import Divider, elementwise
from stoker.lower.registry import Operand, Result, lower


@formula("silu.default", cost=27, floating=True)
def silu(x: LoopValue) -> LoopValue:
    return ops.div(x, ops.add(ops.exp(ops.neg(x)), like(x, 1.0)))


@formula("silu_backward.default", cost=47, floating=True)
def silu_backward(gradient: LoopValue, x: LoopValue) -> LoopValue:
    s = ops.sigmoid(x)
    slope = ops.add(ops.mul(x, ops.sub(like(x, 1.0), s)), like(x, 1.0))
    return ops.mul(ops.mul(gradient, s), slope)


@formula("sigmoid_backward.default", floating=True)
def sigmoid_backward(gradient: LoopValue, output: LoopValue) -> LoopValue:
    return ops.mul(gradient, ops.mul(ops.sub(like(output, 1.0), output), output))


@formula("tanh_backward.default", floating=True)
def tanh_backward(gradient: LoopValue, output: LoopValue) -> LoopValue:
    return ops.mul(gradient, ops.sub(like(output, 1.0), ops.mul(output, output)))


@formula("threshold_backward.default", cost=2, floating=True, rounded=True)
def threshold_backward(gradient: LoopValue, x: LoopValue, threshold: LoopValue) -> LoopValue:
    return ops.where(ops.le(x, threshold), like(gradient, 0.0), gradient)


@formula("hardtanh_backward.default", floating=True, rounded=True)
def hardtanh_backward(gradient: LoopValue, x: LoopValue, low: LoopValue, high: LoopValue) -> LoopValue:
    return ops.where(ops.bitwise_or(ops.le(x, low), ops.ge(x, high)), like(gradient, 0.0), gradient)


@formula("leaky_relu.default", cost=3, last=0.01, floating=True)
def leaky_relu(x: LoopValue, slope: LoopValue) -> LoopValue:
    return ops.where(ops.gt(x, like(x, 0.0)), x, ops.mul(x, slope))


@lower("leaky_relu_backward.default")
def leaky_relu_backward(
    builder: Builder, out: Result, gradient: Tensor, x: Tensor, slope: Operand, is_result: bool
) -> Tensor:
    refuse_other_types(out, [gradient, x])

    def function(g: LoopValue, v: LoopValue, s: LoopValue) -> LoopValue:
        return ops.where(ops.gt(v, like(v, 0.0)), g, ops.mul(g, s))

    return elementwise(builder, out, [gradient, x, slope], function, cost=3)


def _raised(x: LoopValue) -> Any:
    """x and 3, between 0 and 6. Of two zeros the second is chosen, which is the sum."""
    return ops.minimum(like(x, 6.0), ops.maximum(like(x, 0.0), ops.add(x, like(x, 3.0))))


@formula("hardsigmoid.default", cost=7, floating=True, divides=True)
def hardsigmoid(divide: Divider, x: LoopValue) -> LoopValue:
    return divide(_raised(x), like(x, 6.0))


@formula("hardsigmoid_backward.default", cost=7, floating=True)
def hardsigmoid_backward(gradient: LoopValue, x: LoopValue) -> LoopValue:
    within = ops.bitwise_and(ops.gt(x, like(x, -3.0)), ops.lt(x, like(x, 3.0)))
    return ops.where(within, ops.mul(gradient, like(x, 1 / 6)), like(x, 0.0))


@formula("hardswish.default", cost=9, floating=True, divides=True)
def hardswish(divide: Divider, x: LoopValue) -> LoopValue:
    return divide(ops.mul(x, _raised(x)), like(x, 6.0))


@formula("hardswish_backward.default", cost=16, floating=True, divides=True)
def hardswish_backward(divide: Divider, gradient: LoopValue, x: LoopValue) -> LoopValue:
    bent = ops.mul(gradient, ops.add(divide(x, like(x, 3.0)), like(x, 0.5)))
    inner = ops.where(ops.lt(x, like(x, 3.0)), bent, gradient)
    return ops.where(ops.le(x, like(x, -3.0)), like(x, 0.0), inner)
