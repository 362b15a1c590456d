"""Training graphs whose images are turned: results, gradients and strides are eager's, and convolutions see channels fastest."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule

import stoker
from stoker import pipeline
from stoker.autograd import aot
from stoker.autograd.compile import run_eagerly
from stoker.passes.images import Images, turn_images
from stoker.pipeline import decompositions

aten = torch.ops.aten
CONVOLUTIONS = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}


class Block(nn.Module):
    def __init__(self, step: int = 1) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, step, padding=1, bias=False), nn.Conv2d(8, 8, 1)
        self.norm, self.last = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.short = nn.Conv2d(8, 8, 1, step) if step > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.last(self.b(F.relu(self.norm(self.a(x))))) + self.short(x))


class Shuffled(nn.Module):
    """Views, and operators that know nothing of images, between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.a(x)
        y = y.view(y.shape[0], 2, 4, *y.shape[2:]).transpose(1, 2).reshape(y.shape)
        y = self.norm(y).cumsum(2)
        z = self.b(torch.cat([y[:, :4], y[:, 4:] * 2], 1))
        return y, F.interpolate(z, scale_factor=2).flatten(1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "residual": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(), Block(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    ),
    "an image comes out": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(8, 5, 3)),
    "dropout": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Conv2d(8, 8, 3), nn.Dropout2d(0.5)),
    "up": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 2, 2), nn.PixelShuffle(2), nn.Conv2d(1, 2, 3)),
    "shuffled": Shuffled,
}  # fmt: skip


def _looked_at(module: GraphModule, fakes: list[Any], seen: list[bool]) -> Callable[..., Any]:
    for node in module.graph.nodes:
        for position in CONVOLUTIONS.get(node.target, ()):
            value = node.args[position].meta["val"]
            seen.append(value.is_contiguous(memory_format=torch.channels_last))
    return run_eagerly(module, fakes)


def _foretold(module: GraphModule, fakes: list[Any], seen: list[bool]) -> Callable[..., Any]:
    """Run a graph, and compare what each node gives with its metadata."""
    _looked_at(module, fakes, seen)

    class Checked(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            made, told = super().run_node(n), n.meta.get("val")
            if isinstance(made, torch.Tensor) and isinstance(told, torch.Tensor):
                same = [
                    s == t for size, s, t in zip(made.shape, made.stride(), told.stride(), strict=True) if size != 1
                ]
                assert all(same), (n, made.stride(), told.stride())
            return made

    return lambda *inputs: Checked(module).run(*inputs)


@pytest.mark.parametrize("name", MODELS)
def test_as_eager(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    mine = copy.deepcopy(model)
    seen: list[bool] = []
    images = Images("cpu", (torch.float64,))
    compiled = stoker.compile(
        mine,
        backend=functools.partial(
            aot,
            forward_compiler=functools.partial(_foretold, seen=seen),
            backward_compiler=functools.partial(_foretold, seen=seen),
            decompositions=decompositions(),
            change=functools.partial(turn_images, images=images),
        ),
        fullgraph=True,
    )
    x = torch.randn(2, 3, 24, 24, dtype=torch.float64)
    given = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    found: list[Any] = []
    for function, inputs in zip((model, compiled), given):
        torch.manual_seed(1)
        made = function(inputs)
        made = made if isinstance(made, tuple) else (made,)
        sum((m * m).sum() for m in made).backward()
        found.append(made)
    for eager, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()
    for (_, a), (_, b) in zip(model.named_parameters(), mine.named_parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad)
        assert b.grad is not None and a.grad is not None and b.grad.stride() == a.grad.stride()
    torch.testing.assert_close(given[1].grad, given[0].grad)
    for a, b in zip(model.buffers(), mine.buffers(), strict=True):
        torch.testing.assert_close(b, a)
    assert seen and all(seen)


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3, groups=6)), nn.Conv1d(3, 4, 3)],
    ids=["groups", "lines"],
)
def test_others_stay(model: nn.Module) -> None:
    """A graph with other convolutions is left as it is."""
    seen: list[Any] = []

    def change(forward: GraphModule, visible: int) -> Any:
        seen.append(turn_images(forward, visible, Images("cpu", (torch.float32,))))
        return seen[-1]

    compiled = stoker.compile(model, backend=functools.partial(aot, forward_compiler=run_eagerly, change=change))
    x = torch.randn(2, 3, 12, 12) if isinstance(model, nn.Sequential) else torch.randn(2, 3, 12)
    torch.testing.assert_close(compiled(x), model(x))
    assert seen == [None]


@pytest.mark.parametrize("name", ["residual", "an image comes out", "shuffled"])
def test_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same through loops: gradients of weights have eager's strides, also where a window is one element."""
    monkeypatch.setattr(pipeline, "turn_images", functools.partial(turn_images, images=Images("cpu", (torch.float32,))))
    torch.manual_seed(0)
    model = MODELS[name]()
    mine, x = copy.deepcopy(model), torch.randn(2, 3, 24, 24)
    for function in (model, stoker.compile(mine, fullgraph=True)):
        made = function(x)
        for result in made if isinstance(made, tuple) else (made,):
            result.square().mean().backward(retain_graph=True)
    for a, b in zip(model.parameters(), mine.parameters(), strict=True):
        assert b.grad is not None and a.grad is not None and b.grad.stride() == a.grad.stride()
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-4)
