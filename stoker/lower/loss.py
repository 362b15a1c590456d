"""The negative log likelihood: one look-up for each label, which is checked as a label."""

from __future__ import annotations

from dataclasses import replace

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Computed, Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.index import counted_from_0
from stoker.lower.operand import compute_dtype, elementwise, number, require_supported
from stoker.lower.reduce import reduced
from stoker.lower.registry import LeftToLibrary, Result, lower
from stoker.shape.expr import Expr

NONE, MEAN = 0, 1
"""ATen's numbers for reductions."""


@lower("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss_forward(
    builder: Builder, out: list[Result], x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int
) -> list[Tensor]:
    """The loss, and the sum of the weights of all labels that are not ignored."""
    require_supported(x.dtype)
    wide = compute_dtype(x.dtype)
    if wide is not x.dtype and not builder.target(x.device).wide_losses:
        raise LeftToLibrary("sums of half precision are rounded as the library's")
    classes = 1 if len(x.sizes) > 1 else 0
    one = Result(wide, x.device, target.sizes, target.strides)
    inputs = [t for t in (x, target, weight) if t is not None]

    def label_at(at: Index) -> tuple[LoopValue, LoopValue]:
        """A label, 0 if it is ignored; and whether it is."""
        label = ops.to_dtype(target.at(at), torch.int64)
        ignored = ops.eq(label, ops.constant(ignore, torch.int64))
        return ops.where(ignored, ops.constant(0, torch.int64), label), ignored

    def place_of(label: LoopValue) -> Expr:
        return counted_from_0(label, x.sizes[classes], "target")

    def share_at(at: Index) -> LoopValue:
        """The weight of a label."""
        label, ignored = label_at(at)
        value = ops.constant(1.0, wide) if weight is None else ops.to_dtype(weight.at((place_of(label),)), wide)
        return ops.where(ignored, ops.constant(0.0, wide), value)

    def loss_at(at: Index) -> LoopValue:
        """0 where ignored, even if an infinity or NaN was picked there."""
        return ops.where(label_at(at)[1], ops.constant(0.0, wide), ops.mul(picked.at(at), share_at(at)))

    def picked_at(at: Index) -> LoopValue:
        place = place_of(label_at(at)[0])
        found = x.at((*at[:classes], place, *at[classes:]) if at else (place,))
        return ops.neg(ops.to_dtype(found, wide))

    picked: Tensor = builder.compute(one, picked_at, [x, target], cost=4)
    if isinstance(x, Computed) and builder.target(x.device).split is not None:
        picked = builder.store(picked)  # by the kernel that has read the row, not by few programs that add up
    loss = builder.compute(one, loss_at, [picked, *inputs[1:]], cost=2)
    if reduction == NONE and len(x.sizes) > 1:
        return [
            elementwise(builder, out[0], [loss], lambda v: v),
            builder.compute(out[1], lambda at: number(0.0, x.dtype)),
        ]
    shares = builder.compute(one, share_at, inputs[1:], cost=4)
    sums = [replace(r, dtype=wide) for r in out]
    total = reduced(builder, sums[1], shares, None, False, "sum", lambda v: v)
    losses = reduced(builder, sums[0], loss, None, False, "sum", lambda v: v)
    if reduction == MEAN:
        summed = losses
        losses = builder.compute(sums[0], lambda at: ops.div(summed.at(at), total.at(at)), [summed, total], cost=4)
    if wide is x.dtype:
        return [losses, total]
    return [elementwise(builder, r, [s], lambda v: v) for r, s in zip(out, (losses, total))]
