"""Functions behind linear layers that the library computes with the product: which are found, and what becomes of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Node

from stoker.passes.activation import join_activations
from tests.unit.passes.devices import CPU, GPU, Written

aten = torch.ops.aten
ROOT = math.sqrt(2 / math.pi)
Make = Callable[[Written, Node], Node]


def written_out(w: Written, y: Node) -> Node:
    """GPT-2's GELU."""
    inner = w.call(aten.add.Tensor, y, w.call(aten.mul.Tensor, w.call(aten.pow.Tensor_Scalar, y, 3.0), 0.044715))
    turned = w.call(aten.add.Tensor, w.call(aten.tanh.default, w.call(aten.mul.Tensor, inner, ROOT)), 1.0)
    return w.call(aten.mul.Tensor, w.call(aten.mul.Tensor, y, 0.5), turned)


def cubed(w: Written, y: Node) -> Node:
    """The same with products for the power."""
    cube = w.call(aten.mul.Tensor, w.call(aten.mul.Tensor, y, y), y)
    inner = w.call(aten.mul.Tensor, w.call(aten.add.Tensor, y, w.call(aten.mul.Tensor, cube, 0.044715)), ROOT)
    half = w.call(aten.mul.Tensor, w.call(aten.add.Tensor, w.call(aten.tanh.default, inner), 1), 0.5)
    return w.call(aten.mul.Tensor, y, half)


def in_view(w: Written, y: Node) -> Node:
    seen = w.call(aten.view.default, y, [2, 4, 8])
    return w.call(aten.gelu.default, seen, approximate="tanh")


def quick(w: Written, y: Node) -> Node:
    return w.call(aten.mul.Tensor, y, w.call(aten.sigmoid.default, w.call(aten.mul.Tensor, y, 1.702)))


def read_twice(w: Written, y: Node) -> Node:
    return w.call(aten.add.Tensor, w.call(aten.relu.default, y), y)


FOUND: dict[str, tuple[Make, str]] = {
    "relu": (lambda w, y: w.call(aten.relu.default, y), "relu"),
    "relu and more": (lambda w, y: w.call(aten.mul.Tensor, w.call(aten.relu.default, y), 2.0), "relu"),
    "limit": (lambda w, y: w.call(aten.clamp_min.default, y, 0), "relu"),
    "gelu": (lambda w, y: w.call(aten.gelu.default, y, approximate="tanh"), "gelu"),
    "written out": (written_out, "gelu"),
    "cubed": (cubed, "gelu"),
    "in a view": (in_view, "gelu"),
}
LEFT: dict[str, Make] = {
    "erf": lambda w, y: w.call(aten.gelu.default, y),
    "quick": quick,
    "read twice": read_twice,
    "nothing": lambda w, y: w.call(aten.mul.Tensor, y, 2.0),
    "of two": lambda w, y: w.call(aten.relu.default, w.call(aten.add.Tensor, y, w.input(8, 8, dtype=torch.float16))),
}


def graph(make: Make, dtype: torch.dtype = torch.float16, device: torch.device = GPU, **scales: Any) -> GraphModule:
    w = Written()
    bias, x, weight = (w.input(*s, dtype=dtype, device=device) for s in ((8,), (8, 16), (16, 8)))
    return w.output(make(w, w.call(aten.addmm.default, bias, x, weight, **scales)))


def targets(module: GraphModule) -> list[Any]:
    return [n.target for n in module.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    make, form = FOUND[name]
    module, asked = graph(make), []
    assert join_activations(module, lambda node, form: bool(asked.append(form)) or True) == 1
    module.graph.lint()
    assert asked == [form]
    rest = {aten.view.default} if name == "in a view" else {aten.mul.Tensor} if name == "relu and more" else set()
    assert targets(module)[0] is aten._addmm_activation.default and set(targets(module)[1:]) == rest
    torch.manual_seed(0)
    given = [torch.randn(s) for s in ((8,), (8, 16), (16, 8))]
    wanted = GraphModule(torch.nn.Module(), graph(make).graph)(*given)
    module.recompile()
    torch.testing.assert_close(module(*given), wanted, rtol=1e-3, atol=1e-3)  # the processor's is the form of erf


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    module = graph(LEFT[name])
    before = targets(module)
    assert join_activations(module, lambda node, form: True) == 0
    assert targets(module) == before


def test_only_what_the_library_is_asked_for() -> None:
    relu, _ = FOUND["relu"]
    assert join_activations(graph(relu), lambda node, form: False) == 0
    assert join_activations(graph(relu, torch.float32), lambda node, form: True) == 0
    assert join_activations(graph(relu, device=CPU), lambda node, form: True) == 0
    assert join_activations(graph(relu, beta=2), lambda node, form: True) == 0
