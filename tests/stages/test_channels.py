"""Normalization by channels, in training and in evaluation, and its gradients, through every stage."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker.autograd import aot
from stoker.codegen.aten import through_aten
from stoker.pipeline import decompositions

aten = torch.ops.aten
SIZES = [(6, 3), (4, 3, 5), (2, 3, 4, 5), (1, 3, 7), (2, 3, 2, 3, 4), (5, 1, 2, 2)]


def norm_of(rank: int) -> Any:
    return {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[rank]


def close(found: Any, expected: Any, dtype: torch.dtype) -> None:
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 2e-5, "atol": 2e-5}
    torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_norm(agree: Any, sizes: tuple[int, ...], dtype: torch.dtype, affine: bool) -> None:
    torch.manual_seed(0)
    x, g = (torch.randn(sizes).to(dtype) for _ in range(2))
    weight, bias, mean, variance = (torch.rand(sizes[1]).to(dtype) for _ in range(4))
    functional = aten._native_batch_norm_legit_functional

    def program(x: Any, g: Any, weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
        w, b = (weight, bias) if affine else (None, None)
        out, middle, scale, *moved = functional(x, w, b, mean, variance, True, 0.3, 1e-3)
        back = [
            aten.native_batch_norm_backward(g, x, w, mean, variance, middle, scale, training, 1e-3, [True] * 3)
            for training in (True, False)
        ]
        return [out, middle, scale, *moved, *back[0], *back[1]]

    agree([program], [x, g, weight, bias, mean, variance], exact=False)


def trained(model: Any, call: Any, x: torch.Tensor) -> list[Any]:
    """Three steps: results, gradients and statistics."""
    found: list[Any] = []
    for step in range(3):
        leaf = (x * (step + 1)).detach().requires_grad_()
        out = call(leaf)
        gradients = torch.autograd.grad(out.square().mean(), [leaf, *model.parameters()])
        found += [out.detach(), *gradients, *(b.clone() for b in model.buffers())]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", SIZES[::2], ids=str)
@pytest.mark.parametrize("how", [{}, {"affine": False}, {"momentum": None}, {"momentum": 0.9}, {"track_running_stats": False}], ids=str)  # fmt: skip
def test_layer(sizes: tuple[int, ...], how: dict[str, Any], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(norm_of(len(sizes))(sizes[1], **how), nn.ReLU(), norm_of(len(sizes))(sizes[1], **how)).to(
        dtype
    )
    other, x = copy.deepcopy(model), torch.randn(sizes).to(dtype)
    close(trained(other, stoker.compile(other), x), trained(model, model, x), dtype)


@pytest.mark.parametrize("dynamic", [True, False])
def test_batches_of_other_sizes(dynamic: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2))
    other = copy.deepcopy(model)
    compiled = stoker.compile(other, dynamic=dynamic)
    for batch, side in ((2, 8), (3, 8), (5, 9)):
        x = torch.randn(batch, 3, side, side)
        close(trained(other, compiled, x), trained(model, model, x), torch.float32)


def test_channels_last_and_frozen_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2))
    model = model.to(memory_format=torch.channels_last)
    model[1].eval()
    other = copy.deepcopy(model)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    close(trained(other, stoker.compile(other), x), trained(model, model, x), torch.float32)


def test_one_operator_each_in_the_graph() -> None:
    """The chains are not taken apart before the graph is lowered."""
    seen: list[str] = []

    def compiler(module: Any, fakes: list[Any]) -> Any:
        seen.extend(str(n.target) for n in module.graph.nodes if n.op == "call_function")
        return through_aten(module)

    def program(x: Any, weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return (torch.relu(nn.functional.batch_norm(x, mean, variance, weight, bias, True)),)

    torch.manual_seed(0)
    leaves = [torch.randn(2, 4, 3, 3), torch.rand(4), torch.rand(4)]
    given = [*(t.requires_grad_() for t in leaves), torch.zeros(4), torch.ones(4)]
    again = [*leaves, torch.zeros(4), torch.ones(4)]
    graph = torch.fx.Graph()
    called = graph.call_function(program, tuple(graph.placeholder(f"x{i}") for i in range(len(given))))
    graph.output((graph.call_function(operator.getitem, (called, 0)),))
    module = torch.fx.GraphModule(nn.Module(), graph)
    call = aot(module, given, forward_compiler=compiler, decompositions=decompositions())
    results = [call(*given)[0], program(*again)[0]]
    gradients = [torch.autograd.grad(r.square().sum(), leaves) for r in results]
    close(results[0], results[1], torch.float32)
    close(gradients[0], gradients[1], torch.float32)
    close(given[3:], again[3:], torch.float32)
    assert {"stoker.normalize.default", "stoker.normalize_backward.default", "stoker.running.default"} <= set(seen)
    assert len(seen) < 24


@pytest.mark.parametrize("freezing", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_inference(freezing: bool, dtype: torch.dtype) -> None:
    """Behind a convolution, which may take it in; before one; behind a transposed one; with a second reader; without weights."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3, bias=False), nn.ConvTranspose2d(4, 4, 2)
            self.norms = nn.ModuleList(nn.BatchNorm2d(4, affine=n != 3) for n in range(4))
            for norm in self.norms:
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)

        def forward(self, x: torch.Tensor) -> Any:
            x = torch.relu(self.norms[0](self.first(x)))
            y = self.norms[1](self.second(x)).sigmoid()
            z = self.first(y[:, :3])
            return self.norms[2](z) + z, self.norms[3](self.first(x[:, :3]))

    torch.manual_seed(0)
    model, x = Net().eval().to(dtype), torch.randn(2, 3, 9, 9, dtype=dtype)
    with torch.no_grad():
        close(stoker.compile(model, options={"freezing": freezing})(x), model(x), dtype)
