"""Losses where infinities and NaN stand: what is ignored is 0 whatever was picked there, and what is no number stays none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

Tensor = torch.Tensor
Loss = Callable[..., Tensor]

LABELLED: dict[str, Loss] = {
    "cross_entropy": lambda x, y, w: F.cross_entropy(x, y, w),
    "smoothed": lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1),
    "nll": lambda x, y, w: F.nll_loss(x, y, w),
    "nll_sum": lambda x, y, w: F.nll_loss(x, y, w, reduction="sum"),
    "nll_each": lambda x, y, w: F.nll_loss(x, y, w, reduction="none"),
    "other_index": lambda x, y, w: F.nll_loss(x, y.clamp(min=-1), w, ignore_index=-1),
}
LABELS = ([-100, -100], [-100, 1], [3, -100], [0, 1])


def _same(loss: Loss, compiled: Any, upstream: float, x: Tensor, *rest: Any) -> None:
    """The loss and its gradient."""
    found = []
    for function in (loss, compiled):
        leaf = x.clone().requires_grad_()
        result = function(leaf, *rest)
        result.backward(torch.full_like(result, upstream))
        found.append((result.detach(), leaf.grad))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("weight", [None, [0.0, 0.0, 0.5, 1.0]], ids=["alike", "weighted"])
@pytest.mark.parametrize("name", LABELLED)
def test_ignored_labels(name: str, weight: list[float] | None, backend: str) -> None:
    compiled = stoker.compile(LABELLED[name], backend=backend, options={"version_limit": 32})
    w = None if weight is None else torch.tensor(weight)
    for shape in ((2, 4), (2, 4, 1)):
        for labels in LABELS:
            for first in (0.0, -math.inf, math.nan):
                x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
                x[0, 0] = first
                for upstream in (1.0, math.inf):
                    y = torch.tensor(labels).reshape(shape[0], *shape[2:])
                    _same(LABELLED[name], compiled, upstream, x.reshape(shape), y, w)


NUMBERS = [math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, -0.25, 0.0, 3.0, -3.0]
DISTANCES: dict[str, Loss] = {
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "smooth_l1_half": lambda x, y: F.smooth_l1_loss(x, y, beta=0.5),
    "smooth_l1_zero": lambda x, y: F.smooth_l1_loss(x, y, beta=0.0),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="sum", delta=0.5),
    "mse": lambda x, y: F.mse_loss(x, y),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="sum"),
    "logit": lambda x, y: torch.logit(x),
    "logit_no_eps": lambda x, y: torch.logit(x, eps=-1.0),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances(name: str) -> None:
    compiled = stoker.compile(DISTANCES[name])
    for upstream in (1.0, 0.0, math.nan):
        _same(DISTANCES[name], compiled, upstream, torch.tensor(NUMBERS), torch.zeros(len(NUMBERS)))
