"""Inputs of which eager keeps nothing may be written to before the backward, which computes from what they were."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log


class Shifted(nn.Module):
    """relu(a * x + bias): the bias is saved by nobody, and is small beside the result."""

    def __init__(self, shape: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.bias, self.scale, self.shape = nn.Parameter(torch.randn(8)), nn.Parameter(torch.rand(4)), shape

    def forward(self, x: torch.Tensor) -> Any:
        shifted = x.sin() * self.scale[:, None, None] + self.shape(self.bias)
        return torch.relu(shifted).exp().sigmoid()


SHAPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "part": lambda b: b[2:6].view(1, -1, 1, 1),
    "every other": lambda b: b[::2, None, None],
    "backwards": lambda b: b.flip(0)[:4, None, None],
    "expanded": lambda b: b[:4, None, None].expand(4, 5, 5),
    "transposed": lambda b: b[4:].view(2, 2).t().reshape(4, 1, 1),
    "number": lambda b: b[1],
}


def gradients(module: nn.Module, call: Any, x: torch.Tensor, written: Callable[[nn.Module], None]) -> Any:
    leaf = x.clone().requires_grad_()
    out = call(leaf)
    with torch.no_grad():
        written(module)
    return torch.autograd.grad(out.square().sum(), [leaf, *module.parameters()])


def held_to_eager(module: nn.Module, x: torch.Tensor, written: Callable[[Any], None]) -> None:
    other = copy.deepcopy(module)
    expected = gradients(module, module, x, written)
    torch.testing.assert_close(gradients(other, stoker.compile(other), x, written), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_bias_that_is_added(shape: str) -> None:
    torch.manual_seed(0)
    held_to_eager(Shifted(SHAPES[shape]), torch.randn(2, 4, 5, 5), lambda module: module.bias.add_(3.0))


LAYERS = {
    "batch norm": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)),
    "group norm": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 2, 3)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3), nn.Sigmoid()),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_the_biases_of_layers(layer: str) -> None:
    torch.manual_seed(0)

    def written(module: Any) -> None:
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.mul_(-2.0).add_(1.0)

    held_to_eager(LAYERS[layer](), torch.randn(2, 3, 5, 5), written)


def test_a_weight_that_eager_saves_is_refused() -> None:
    model = LAYERS["batch norm"]()
    out = stoker.compile(model)(torch.randn(2, 3, 5, 5))
    with torch.no_grad():
        model[1].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


class Counted(Shifted):
    """What is added is a buffer, which the program itself writes to."""

    def __init__(self) -> None:
        super().__init__(lambda b: b)
        self.register_buffer("shift", torch.randn(4, 1, 1))
        del self.bias

    def forward(self, x: torch.Tensor) -> Any:
        result = torch.relu(x.sin() * self.scale[:, None, None] + self.shift).exp().sigmoid()
        self.shift.mul_(0.5).add_(1.0)
        return result


def test_a_buffer_that_the_program_writes_to() -> None:
    torch.manual_seed(0)
    seen: list[log.Event] = []
    with log.collecting(seen):
        held_to_eager(Counted(), torch.randn(2, 4, 5, 5), lambda module: module.shift.add_(3.0))
    assert not [event for event in seen if event.kind == "as captured"]


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one": lambda x: (x.sigmoid(),),
    "two": lambda x: (x.exp(), x.sigmoid()),
    "three": lambda x: (x.tanh(), x.exp(), torch.softmax(x, -1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("at", [0, -1])
def test_results_that_eager_keeps(name: str, at: int) -> None:
    """They are kept, and no copy of the input in their place: who writes to one is told, as in eager."""
    for call in (FUNCTIONS[name], stoker.compile(FUNCTIONS[name])):
        results = call(torch.randn(40, 50, requires_grad=True))
        results[at].detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sum(r.sum() for r in results).backward()


PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "unbound": lambda x: x.unbind(0),
    "split": lambda x: x.split(2),
    "chunks of columns": lambda x: x.chunk(2, 1),
    "rows of the transpose": lambda x: x.t().unbind(0),
    "parts of parts": lambda x: [p[1:] for p in x.split([1, 3], 1)],
    "one view": lambda x: [x.t()],
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("written", [None, 0, 1])
def test_inputs_of_which_eager_keeps_parts(name: str, written: int | None) -> None:
    """Gradients are of what the inputs were; who writes to one is told."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return sum((a * b).sum() for a, b in zip(PARTS[name](x), PARTS[name](y)))

    found = []
    for call in (program, stoker.compile(program)):
        torch.manual_seed(0)
        leaves = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
        given = [leaf.clone() for leaf in leaves]
        result = call(*given)
        if written is None:
            found.append(torch.autograd.grad(result, leaves))
            continue
        with torch.no_grad():
            given[written].mul_(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation|has been modified inplace"):
            result.backward()
    if found:
        torch.testing.assert_close(*found)
