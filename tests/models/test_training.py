"""Five training steps of real architectures, captured and differentiated ahead of time: losses, gradients, buffers.

Bit for bit with the operators as eager runs them, within rounding when they are taken apart.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from bench.zoo import ZOO
from stoker.autograd import aot, aot_eager, run_eagerly
from stoker.decompose import table

pytest.importorskip("transformers")

MODELS = ["bert", "gpt2", "llama", "t5", "vit", "resnet", "convnext"]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, lr=1e-2, momentum=0.9),
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-3),
}


class Counting:
    """A back end that counts its graphs, and those that were left as captured."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.graphs, self.left = backend, 0, 0

    def __call__(self, graph: Any, inputs: list[Any]) -> Any:
        call = self.backend(graph, inputs)
        self.graphs += 1
        self.left += call is graph
        return call


def loss_of(outputs: Any) -> torch.Tensor:
    first = outputs[0] if isinstance(outputs, tuple) else next(v for v in outputs.values() if v is not None)
    return first.float().square().mean()


def train(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor], make: Any, steps: int, backend: Any = None
) -> list[torch.Tensor | None]:
    """Losses, gradients and buffers of each step. The loss is part of what is compiled: a gradient that enters from
    outside is laid out as the graph's result is, where eager may sum it in another order."""

    def loss_of_model(**inputs: torch.Tensor) -> torch.Tensor:
        return loss_of(model(**inputs))

    call = loss_of_model if backend is None else stoker.compile(loss_of_model, backend=backend)
    torch.manual_seed(4)
    optimizer = make(model.parameters())
    seen: list[torch.Tensor | None] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(**inputs)
        loss.backward()
        seen.append(loss.detach())
        seen += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        seen += [b.clone() for b in model.buffers()]
        optimizer.step()
    return seen


def made(name: str) -> Any:
    torch.manual_seed(0)
    model, inputs = ZOO[name]()
    if "labels" in inputs:
        inputs = {k: v for k, v in inputs.items() if k != "labels"}
    return model.train(), inputs


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_bit_for_bit(name: str, optimizer: str) -> None:
    model, inputs = made(name)
    other, backend = copy.deepcopy(model), Counting(aot_eager)
    theirs = train(model, inputs, OPTIMIZERS[optimizer], 5)
    ours = train(other, inputs, OPTIMIZERS[optimizer], 5, backend)
    assert backend.graphs >= 1 and not backend.left
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def decomposed(graph: Any, inputs: list[Any]) -> Any:
    return aot(graph, inputs, forward_compiler=run_eagerly, decompositions=table())


@pytest.mark.parametrize("name", MODELS)
def test_taken_apart(name: str) -> None:
    model, inputs = made(name)
    other = copy.deepcopy(model)
    theirs = train(model, inputs, OPTIMIZERS["sgd"], 2)
    ours = train(other, inputs, OPTIMIZERS["sgd"], 2, decomposed)
    for a, b in zip(ours, theirs):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
