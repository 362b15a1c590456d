"""Parameters, and copies of leaves, that captured code makes: code behind the graph has them, and asks for their gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import BREAK, program
from torch import nn

import stoker

Tensor = torch.Tensor


def _of_a_result(x):
    weight = nn.Parameter(x.detach().mean(0) * 2)
    return (x * weight).sum(), [weight]


def _of_ones(x):
    weight = nn.Parameter(torch.ones(4))
    return (x * weight * weight).sum(), [weight]


def _initialized(x):
    weight = nn.Parameter(torch.empty(4, 4))
    nn.init.constant_(weight, 0.5)
    return (x @ weight).relu().sum(), [weight]


def _a_layer(x):
    layer = nn.Linear(4, 2)
    return layer(x).pow(2).sum(), [layer, *layer.parameters()]


def _a_network(x):
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    return network(x).mean(), list(network.parameters())


def _read_behind_it(x):
    data = x.detach() * 3
    weight = nn.Parameter(data)
    return (weight * data).sum(), [weight]


def _written_and_read(x):
    data = x.detach() * 3
    weight = nn.Parameter(data)
    with torch.no_grad():
        weight.add_(1)
    return (weight * data).sum(), [weight]


def _given_away_with_its_data(x):
    data = x.detach() * 3
    weight = nn.Parameter(data)
    return (weight * 2).sum(), [weight, data]


def _of_an_input(x):
    weight = nn.Parameter(x)
    return (weight * 2).sum(), [weight]


def _copied(x):
    leaf = copy.deepcopy(WEIGHT)
    return (x * leaf).sum() + WEIGHT.sum(), [leaf]


def _copied_with_its_gradient(x):
    leaf = copy.deepcopy(SEEN)
    return (x * leaf).sum(), [leaf, leaf.grad]


WEIGHT = nn.Parameter(torch.arange(4.0))
SEEN = torch.arange(4.0, requires_grad=True)
SEEN.grad = torch.ones(4)
WHOLE = [
    _of_a_result,
    _of_ones,
    _initialized,
    _a_layer,
    _a_network,
    _read_behind_it,
    _copied,
    _copied_with_its_gradient,
]
BROKEN = [_written_and_read, _given_away_with_its_data, _of_an_input]


def _observed(run: Callable[..., Any]) -> list[Any]:
    found: list[Any] = []
    torch.manual_seed(0)
    for seed in range(3):
        x = torch.linspace(-1.0, 1.0 + seed, 12).reshape(3, 4).requires_grad_(seed == 1)
        loss, made = run(x)
        loss.backward(retain_graph=True)
        loss.backward()
        tensors = [part for part in made if isinstance(part, Tensor)]
        found.append(
            [loss.detach(), x.grad, [(type(t) is nn.Parameter, t.detach(), t.grad, t.is_leaf) for t in tensors]]
        )
        with torch.no_grad():
            tensors[0].zero_()
        found.append([t.detach().clone() for t in tensors])
    WEIGHT.grad = None
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("made", [*WHOLE, *BROKEN], ids=lambda made: made.__name__)
def test_as_in_eager(made: Callable[..., Any], backend: str) -> None:
    options = {} if backend == "stoker" else {"backend": backend}
    found = _observed(stoker.compile(made, fullgraph=made in WHOLE, **options))
    wanted = _observed(made)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("made", BROKEN, ids=lambda made: made.__name__)
def test_shared_memory_is_a_break(made: Callable[..., Any]) -> None:
    with pytest.raises(stoker.errors.GraphBreakError, match="leaf of autograd that is made inside"):
        stoker.compile(made, fullgraph=True)(torch.ones(3, 4))


def test_sizes_that_change() -> None:
    run = stoker.compile(_of_a_result)
    for size in (2, 3, 5):
        loss, (weight,) = run(torch.ones(size, 4))
        loss.backward()
        assert weight.grad.tolist() == [float(size)] * 4


@program("a module that is made inside, and returned", default=True)
def test_module(x):
    layer = nn.Linear(4, 2)
    return layer, layer(x)


@program("a parameter that is made inside, alive at a break", BREAK)
def test_break(x):
    weight = nn.Parameter(torch.ones(4) * 2)
    y = x * weight
    if y.sum() > 0:
        return y * weight, weight
    return y - weight, weight


@program("copy.deepcopy of leaves", inputs=lambda: (torch.randn(3, 4, requires_grad=True), nn.Parameter(torch.ones(4))))
def test_deepcopy(x, weight):
    mine, yours = copy.deepcopy([x, weight])
    return mine * yours, mine, yours
