"""Losses and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose, in_float

NONE, MEAN, SUM = 0, 1, 2
"""ATen's numbers for reductions."""


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    if reduction == MEAN:
        return loss.mean()
    return loss.sum() if reduction == SUM else loss


def _share(gradient: Tensor, x: Tensor, reduction: int) -> Tensor:
    """The gradient of each element's loss."""
    return gradient / x.numel() if reduction == MEAN else gradient


def _factor(number: float, x: Tensor, reduction: int) -> Tensor:
    """What eager's gradients are multiplied by, rounded to their type."""
    share = number if reduction != MEAN or x.numel() == 0 else number / x.numel()
    return torch.full((), share, dtype=x.dtype, device=x.device)


@decompose("mse_loss.default")
def mse_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Eager rounds the difference, here and in the gradient."""
    return _reduced((x - target) * (x - target), reduction)


@decompose("mse_loss_backward.default")
def mse_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    difference = x - target
    return _factor(2.0, difference, reduction) * difference * gradient


@decompose("smooth_l1_loss.default")
@in_float
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    distance = (x - target).abs()
    if beta == 0:
        return _reduced(distance, reduction)
    return _reduced(torch.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta), reduction)


@decompose("smooth_l1_loss_backward.default")
@in_float
def smooth_l1_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    away, share = x - target, _share(gradient, x, reduction)
    if beta == 0:
        return torch.sign(away) * share
    return torch.where(away <= -beta, -share, torch.where(away >= beta, share, away * share / beta))


@decompose("huber_loss.default")
@in_float
def huber_loss(x: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    distance = (x - target).abs()
    loss = torch.where(distance <= delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta))
    return _reduced(loss.to(x.dtype), reduction)


@decompose("binary_cross_entropy_backward.default")
@in_float
def binary_cross_entropy_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Any = None, reduction: int = MEAN
) -> Tensor:
    result = _share(gradient, x, reduction) * (x - target) / torch.clamp(x * (1 - x), min=1e-12)
    return result if weight is None else result * weight


def _nll_parts(x: Tensor, target: Tensor, weight: Any, ignore_index: int) -> tuple[int, Tensor, Tensor, Tensor]:
    """The dimension of classes; labels, 0 where ignored; which are ignored; the weight of each label, 0 where ignored."""
    ignored = target == ignore_index
    labels = torch.where(ignored, torch.zeros((), dtype=target.dtype, device=target.device), target)
    if weight is None:
        weights = torch.ones((), dtype=x.dtype, device=x.device)
    else:
        weights = torch.index_select(weight, 0, labels.reshape(-1)).reshape(labels.shape)
    return 0 if x.dim() < 2 else 1, labels, ignored, _unless(ignored, weights)


def _unless(ignored: Tensor, values: Tensor) -> Tensor:
    """0 where ignored, whatever stands there: a factor of 0 would leave infinities and NaN."""
    return torch.where(ignored, torch.zeros((), dtype=values.dtype, device=values.device), values)


@decompose("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    dim, labels, ignored, weights = _nll_parts(x, target, weight, ignore_index)
    picked = torch.gather(x, dim, labels.unsqueeze(dim)).squeeze(dim)
    loss = _unless(ignored, -picked * weights)
    if reduction == NONE and x.dim() > 1:
        return loss, torch.zeros((), dtype=x.dtype, device=x.device)
    total = weights.sum()
    return (loss.sum() / total if reduction == MEAN else loss.sum()), total


@decompose("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int, total: Tensor
) -> Tensor:
    dim, labels, ignored, weights = _nll_parts(x, target, weight, ignore_index)
    share = gradient / total if reduction == MEAN else gradient
    values = _unless(ignored, -weights * share).unsqueeze(dim)
    return torch.scatter(torch.zeros_like(x, memory_format=torch.contiguous_format), dim, labels.unsqueeze(dim), values)


@decompose("huber_loss_backward.default")
@in_float
def huber_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    away, share = x - target, _share(gradient, x, reduction)
    return torch.where(away <= -delta, -delta * share, torch.where(away >= delta, delta * share, away * share))


@decompose("soft_margin_loss.default")
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Several kernels of eager's, each of which rounds; as the gradient is."""
    return _reduced(torch.log1p(torch.exp(-target * x)), reduction)


@decompose("soft_margin_loss_backward.default")
def soft_margin_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    raised = torch.exp(-target * x)
    return -target * _factor(1.0, x, reduction) * raised / (raised + 1) * gradient


@decompose("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, positive: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    log = torch.nn.functional.logsigmoid(x)
    if positive is not None:
        log = ((positive - 1) * target + 1) * log
    loss = (1 - target) * x - log
    return _reduced((loss if weight is None else loss * weight).to(target.dtype), reduction)
