"""Activations and their gradients, each of which is one operator of the graph, through every stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

aten = torch.ops.aten
SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, -6.0, 0.5, 30.0, -30.0, 100.0, -100.0, *map(float, ("inf", "-inf", "nan"))]  # fmt: skip


def values(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.cat([torch.tensor(SPECIAL), torch.randn(48) * 4]).view(8, 8)
    return [t.to(dtype) for t in (x, torch.randn(8, 8))]


def some(x: torch.Tensor) -> torch.Tensor:
    """No element is no number: of those eager makes one thing in vectors, and another at their ends."""
    return torch.where(x == x, x, 1)


PROGRAMS = {
    "silu": lambda x, g: F.silu(x),
    "silu of a part": lambda x, g: F.silu(x[1:, ::2]) + 1,
    "silu in place": lambda x, g: F.silu(x + 1, inplace=True),
    "silu_backward": lambda x, g: aten.silu_backward(g, x),
    "silu_backward of one gradient": lambda x, g: aten.silu_backward(g[:1].expand(8, 8), x.t()),
    "sigmoid_backward": lambda x, g: aten.sigmoid_backward(g, x.sigmoid()),
    "tanh_backward": lambda x, g: aten.tanh_backward(g, x.tanh()),
    "threshold_backward": lambda x, g: aten.threshold_backward(g, x, 0),
    "threshold_backward of 0.1": lambda x, g: aten.threshold_backward(g, x, 0.1),
    "hardtanh_backward": lambda x, g: aten.hardtanh_backward(g, some(x), -0.3, 0.7),
    "relu6": lambda x, g: (F.relu6(x), aten.hardtanh_backward(g, some(x), 0, 6)),
    "leaky_relu": lambda x, g: F.leaky_relu(x),
    "leaky_relu of 0.3": lambda x, g: F.leaky_relu(x, 0.3),
    "leaky_relu_backward": lambda x, g: aten.leaky_relu_backward(g, x, 0.3, False),
    "hardsigmoid": lambda x, g: F.hardsigmoid(x),
    "hardsigmoid_backward": lambda x, g: aten.hardsigmoid_backward(g, x),
    "hardswish": lambda x, g: F.hardswish(x),
    "hardswish_backward": lambda x, g: aten.hardswish_backward(g, some(x)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_activations(agree: Any, dtype: torch.dtype) -> None:
    (record,) = agree(list(PROGRAMS.values()), values(dtype), exact=False)
    names = " ".join(record.products["program"].lowered)
    assert "aten.silu_backward.default" in names and "aten.exp.default" not in names


def test_other_types_are_left_to_the_library(agree: Any) -> None:
    programs = [lambda x: F.leaky_relu(x.to(torch.float32)), lambda x: F.threshold(x, 1, 7), lambda x: F.relu(x)]
    agree(programs, [torch.arange(-4, 4)], lowered=False)


LAYERS = [
    torch.nn.SiLU,
    torch.nn.Sigmoid,
    torch.nn.Tanh,
    torch.nn.ReLU,
    torch.nn.ReLU6,
    torch.nn.LeakyReLU,
    torch.nn.Hardsigmoid,
    torch.nn.Hardswish,
]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_layers(layer: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), layer(), torch.nn.Linear(8, 8), layer()).to(dtype)
    x = torch.randn(5, 8, dtype=dtype)
    found = [(m(x), torch.autograd.grad(m(x).square().sum(), list(m.parameters()))) for m in (model, stoker.compile(model))]  # fmt: skip
    torch.testing.assert_close(found[1], found[0])
