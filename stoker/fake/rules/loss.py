"""Losses: one number, or one for each element."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta, Size, alike, dense, meta_of, same
from stoker.fake.promote import broadcast, common_device, result_dtype
from stoker.fake.rule import decline_if, rule
from stoker.fake.rules.pointwise import elementwise
from stoker.fake.tensor import FakeTensor

_NONE = 0


def _reduced(tensors: tuple[FakeTensor, ...], reduction: int, dtype: torch.dtype) -> Meta:
    if reduction == _NONE:
        return elementwise(tensors, dtype, dtype)
    broadcast([t.meta.sizes for t in tensors])
    return meta_of(dtype, (), None, common_device(tensors))


@rule("huber_loss")
def huber_loss(x: FakeTensor, target: FakeTensor, reduction: int = 1, delta: float = 1.0) -> Meta:
    """A function of both, element by element, in the type of the first, and written to what is made like it."""
    if reduction == _NONE and same(x.meta.sizes, target.meta.sizes):
        return alike(x.meta)
    return _reduced((x, target), reduction, x.meta.dtype)


@rule("mse_loss", "smooth_l1_loss", "soft_margin_loss")
def difference_loss(x: FakeTensor, target: FakeTensor, reduction: int = 1, *rest: Any) -> Meta:
    """A function of both, element by element."""
    return _reduced((x, target), reduction, result_dtype((x, target)))


@rule("mse_loss_backward", "smooth_l1_loss_backward")
def difference_loss_backward(grad: FakeTensor, x: FakeTensor, target: FakeTensor, *rest: Any) -> Meta:
    """One for each element, contiguous whatever the operands are."""
    return dense(x.meta, broadcast([x.meta.sizes, target.meta.sizes]), result_dtype((grad, x, target)))


@rule("soft_margin_loss_backward")
def soft_margin_loss_backward(grad: FakeTensor, x: FakeTensor, target: FakeTensor, *rest: Any) -> Meta:
    return elementwise((x, target), result_dtype((grad, x, target)))


@rule("binary_cross_entropy")
def binary_cross_entropy(x: FakeTensor, target: FakeTensor, weight: Any = None, reduction: int = 1) -> Meta:
    decline_if(not same(x.meta.sizes, target.meta.sizes))
    return alike(x.meta) if reduction == _NONE else _reduced((x, target), reduction, x.meta.dtype)


@rule("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: FakeTensor,
    target: FakeTensor,
    weight: FakeTensor | None = None,
    pos: FakeTensor | None = None,
    reduction: int = 1,
) -> Meta:
    """Eager begins with `1 - target`, and writes the rest to that."""
    tensors, dtype = tuple(t for t in (x, target, weight, pos) if t is not None), target.meta.dtype
    decline_if(not dtype.is_floating_point)
    if reduction == _NONE and same(broadcast([t.meta.sizes for t in tensors]), target.meta.sizes):
        return alike(target.meta)
    return _reduced(tensors, reduction, dtype)


@rule("nll_loss_forward")
def nll_loss(x: FakeTensor, target: FakeTensor, weight: Any, reduction: int, ignore: Size) -> tuple[Meta, Meta]:
    """Minus the chosen log-probability, and the weight of all."""
    m = x.meta
    decline_if(len(m.sizes) not in (1, 2) or len(target.meta.sizes) > 1)
    decline_if(target.meta.dtype not in (torch.int64, torch.uint8))
    decline_if(not same(m.sizes[:1] if len(m.sizes) == 2 else (1,), target.meta.sizes or (1,)))
    _require_weights(weight, m, m.sizes[-1])
    return dense(m, m.sizes[:1] if reduction == _NONE and len(m.sizes) == 2 else ()), dense(m, ())


def _require_weights(weight: Any, m: Meta, classes: Size) -> None:
    """That there is a weight for each class, of the input's type, or none at all."""
    decline_if(weight is not None and (weight.meta.dtype is not m.dtype or not same(weight.meta.sizes, (classes,))))


@rule("nll_loss2d_forward")
def nll_loss2d(x: FakeTensor, target: FakeTensor, weight: Any, reduction: int, ignore: Size) -> tuple[Meta, Meta]:
    m, t = x.meta, target.meta
    decline_if(len(m.sizes) != 4 or len(t.sizes) != 3 or not same((m.sizes[0], *m.sizes[2:]), t.sizes))
    _require_weights(weight, m, m.sizes[1])
    return dense(m, t.sizes if reduction == _NONE else ()), dense(m, ())
