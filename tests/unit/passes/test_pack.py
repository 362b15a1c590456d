"""Packed layers give eager's numbers, the strange ones among them, wherever in a graph they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stoker
from stoker import pipeline

INF, NAN = float("inf"), float("nan")

ENDINGS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nothing": lambda y: y,
    "a tensor added": lambda y: y + torch.ones_like(y),
    "itself added": lambda y: y + y,
    "relu": F.relu,
    "clamp": lambda y: y.clamp(-1.0, 1.0),
    "clamp with limits the wrong way round": lambda y: y.clamp(1.0, -1.0),
    "relu6": F.relu6,
    "an addition and relu": lambda y: F.relu(y + 1 * y.detach()),
    "gelu": F.gelu,
    "view": lambda y: y.flatten(1),
    "twice": lambda y: (y, F.relu(y)),
}


def _strange(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(*shape)
    flat = x.view(-1)
    flat[3], flat[11], flat[20] = NAN, INF, -INF
    return x


@pytest.mark.parametrize("ending", ENDINGS)
def test_convolutions(ending: str) -> None:
    layer, then = nn.Conv2d(3, 4, 3, padding=1), ENDINGS[ending]
    compiled = stoker.compile(lambda x: then(layer(x)))
    with torch.no_grad():
        for x in (torch.randn(1, 3, 8, 8), _strange(2, 3, 8, 8)):
            torch.testing.assert_close(compiled(x), then(layer(x)), equal_nan=True)


@pytest.mark.parametrize("way", ["plain", "mkl", "onednn"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_linear_layers(ending: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "choose_linear", lambda *shape, **how: way)
    layer, then = nn.Linear(8, 16), ENDINGS[ending]
    compiled = stoker.compile(lambda x: then(layer(x)))
    with torch.no_grad():
        for x in (torch.randn(6, 8), _strange(6, 8).nan_to_num(posinf=3e38, neginf=-1.0, nan=NAN)):
            torch.testing.assert_close(compiled(x), then(layer(x)), equal_nan=True)


def test_a_convolution_alone() -> None:
    layer, x = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8)
    want = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(stoker.compile(layer)(x), want.detach())
