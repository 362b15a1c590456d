"""Normalization by channels, of `[batch, channel, ...]`: operators of our own, each of which stands for a chain of elementwise ones.

In a network with hundreds of normalizations these chains are most of the graph. All of these work element by element, so that a backward may
compute them again; `stoker.lower.channels` has their loops. Values of channels are vectors, or None for what a norm does not have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stoker.fake.meta import Meta
from stoker.fake.rule import RULES
from stoker.fake.tensor import FakeTensor

aten = torch.ops.aten
_library = torch.library.Library("stoker", "FRAGMENT")
for _schema in (
    "normalize(Tensor x, Tensor mean, Tensor scale, Tensor? weight, Tensor? bias) -> Tensor",
    "normalize_backward(Tensor gradient, Tensor normal, Tensor scale, Tensor? weight, Tensor? total, Tensor? along) -> Tensor",
    "running(Tensor old, Tensor new, Scalar momentum) -> Tensor",
):
    _library.define(_schema, tags=(torch.Tag.pointwise,))


def per_channel(value: Tensor, rank: int) -> Tensor:
    """A vector of channels, shaped to broadcast over [batch, channel, ...]."""
    return value.view([1, -1] + [1] * (rank - 2))


def _normalize(x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x less its channel's mean, times its scale and weight, and its bias."""
    rank = x.dim()
    out = (x - per_channel(mean, rank)) * per_channel(scale, rank)
    if weight is not None:
        out = out * per_channel(weight, rank)
    return out if bias is None else out + per_channel(bias, rank)


def _normalize_backward(
    gradient: Tensor, normal: Tensor, scale: Tensor, weight: Tensor | None, total: Tensor | None, along: Tensor | None
) -> Tensor:
    """The gradient of what was normalized to `normal`. The sums of the gradient, and of its product with `normal`, are those of norms by
    the batch's own moments."""
    rank = gradient.dim()
    factor = scale.to(gradient.dtype) if weight is None else scale.to(gradient.dtype) * weight
    if total is not None and along is not None:
        count = gradient.numel() // gradient.shape[1]
        gradient = gradient - (per_channel(total, rank) + normal * per_channel(along, rank)) / count
    return gradient * per_channel(factor, rank)


def _running(old: Tensor, new: Tensor, momentum: Any) -> Tensor:
    """The old value, moved towards the new one; in the new one's type until it is rounded to the old one's."""
    return (momentum * new + (1 - momentum) * old.to(new.dtype)).to(old.dtype)


for _name, _kernel in (("normalize", _normalize), ("normalize_backward", _normalize_backward), ("running", _running)):
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")


def _like(*tensors: FakeTensor) -> Meta:
    made = RULES[aten.neg.default](tensors[0]) if len(tensors) == 1 else RULES[aten.sub.Tensor](*tensors)
    assert isinstance(made, Meta)
    return made


RULES[torch.ops.stoker.normalize.default] = lambda x, *channels: _like(x)
RULES[torch.ops.stoker.normalize_backward.default] = lambda gradient, normal, *channels: _like(gradient, normal)
RULES[torch.ops.stoker.running.default] = lambda old, new, momentum: _like(old)
