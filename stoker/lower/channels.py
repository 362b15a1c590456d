"""Normalization by channels: the loops of the operators of `stoker.fake.rules.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import product
from stoker.loop.op import ELEMENTWISE
from stoker.loop.view import Scalar, Tensor, view
from stoker.lower.builder import Builder
from stoker.lower.operand import divider, elementwise, number
from stoker.lower.registry import LOWERINGS, Operand, Result
from stoker.shape.expr import constant


def _over(rank: int, vectors: Sequence[Tensor | None]) -> list[Tensor]:
    """Vectors of channels, those there are, shaped to broadcast over [batch, channel, ...]."""
    return [_spread(v, rank) for v in vectors if v is not None]


def _spread(vector: Tensor, rank: int) -> Tensor:
    one, zero = constant(1), constant(0)
    sizes = (one, *vector.sizes, *[one] * (rank - 2))
    strides = (zero, *vector.strides, *[zero] * (rank - 2))
    return view(vector, sizes, strides, lambda index: index[1:2])


def normalize(
    builder: Builder, out: Result, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    def function(value: LoopValue, middle: LoopValue, factor: LoopValue, *rest: LoopValue) -> LoopValue:
        given = iter(rest)
        value = ops.mul(ops.sub(value, middle), factor)
        if weight is not None:
            value = ops.mul(value, next(given))
        return value if bias is None else ops.add(value, next(given))

    channels = _over(len(out.sizes), [mean, scale, weight, bias])
    return elementwise(builder, out, [x, *channels], function, cost=len(channels))


def normalize_backward(
    builder: Builder, out: Result, gradient: Tensor, normal: Tensor, scale: Tensor, *parts: Tensor | None
) -> Tensor:
    weight, total, along = parts
    of_batch = total is not None and along is not None
    count = product([size for d, size in enumerate(out.sizes) if d != 1])
    divide = divider(builder, out.device)

    def function(g: LoopValue, n: LoopValue, factor: LoopValue, *rest: LoopValue) -> LoopValue:
        given = iter(rest)
        if weight is not None:
            factor = ops.mul(factor, next(given))
        if of_batch:
            sums = ops.add(next(given), ops.mul(n, next(given)))
            g = ops.sub(g, divide(sums, number(count if count.value is None else count.value, g.dtype)))
        return ops.mul(g, factor)

    channels = _over(len(out.sizes), [scale, weight, *([total, along] if of_batch else [])])
    cost = len(channels) + (2 + ELEMENTWISE["div"].cost if of_batch else 0)
    return elementwise(builder, out, [gradient, normal, *channels], function, cost=cost)


def running(builder: Builder, out: Result, old: Tensor, new: Tensor, momentum: Operand) -> Tensor:
    def function(before: LoopValue, value: LoopValue) -> LoopValue:
        share, rest = number(momentum, value.dtype), _less(momentum, value.dtype)
        return ops.add(ops.mul(share, value), ops.mul(rest, before))

    return elementwise(builder, out, [old, new], function, new.dtype, cost=3)


def _less(momentum: Any, dtype: torch.dtype) -> Any:
    """1 less a number, which Python computes in double precision."""
    if not isinstance(momentum, Scalar):
        return number(1 - momentum, dtype)
    return ops.to_dtype(ops.sub(ops.constant(1.0, torch.float64), number(momentum, torch.float64)), dtype)


LOWERINGS[torch.ops.stoker.normalize.default] = normalize
LOWERINGS[torch.ops.stoker.normalize_backward.default] = normalize_backward
LOWERINGS[torch.ops.stoker.running.default] = running
