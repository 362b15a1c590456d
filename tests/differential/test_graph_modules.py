"""Graph modules of torch.fx are captured like any module."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import fx, nn

import stoker


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> Any:
        y = self.norm(self.linear(x)) * scale
        return {"y": y.relu() + self.offset, "parts": y.chunk(2, -1)}


X = torch.randn(3, 4)
MODELS = [nn.Sequential(nn.Linear(4, 4), nn.GELU()), Branches()]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("inside", [False, True])
def test_a_traced_module_is_one_graph(model: nn.Module, inside: bool) -> None:
    traced = fx.symbolic_trace(copy.deepcopy(model))
    eager = copy.deepcopy(traced)
    program = (lambda x: traced(x * 2)) if inside else traced
    expected = eager(X * 2 if inside else X)
    found = stoker.compile(program, fullgraph=True)(X)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(traced.buffers(), eager.buffers()):
        torch.testing.assert_close(mine, theirs)


def test_an_edited_graph_is_seen() -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    twin = stoker.compile(traced, backend="eager")
    assert torch.equal(twin(X), traced(X))
    for node in twin.graph.nodes:
        if node.target == "1":
            with twin.graph.inserting_after(node):
                added = twin.graph.call_function(torch.neg, (node,))
            node.replace_all_uses_with(added, delete_user_cb=lambda user: user is not added)
    before = twin(X)
    twin.recompile()
    assert torch.equal(twin(X), -before) and torch.equal(traced(X), -before)


def test_tracing_a_program_that_calls_compiled_code() -> None:
    compiled = stoker.compile(lambda x: x.sin() + 1, backend="eager")

    class Caller(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return compiled(x) * 2

    traced = fx.symbolic_trace(Caller())
    assert torch.equal(traced(X), (X.sin() + 1) * 2)
    assert [node.name for node in traced.graph.nodes if node.op != "output"] == ["x", "sin", "add", "mul"]


def test_graphs_with_checkpoints_can_be_printed():
    """torch's printer reads marks that it knows by name."""
    printed = []

    def show(graph_module, example_inputs):
        printed.append(graph_module.print_readable(print_output=False))
        return graph_module.forward

    def program(x, y):
        once = torch.utils.checkpoint.checkpoint(lambda a, b: torch.sigmoid(a @ b), x, y, use_reentrant=False)
        return torch.utils.checkpoint.checkpoint(torch.sin, once, use_reentrant=False) + x

    x = torch.ones(2, 2, requires_grad=True)
    stoker.compile(program, backend=show)(x, x)
    assert "ac_graph_id" in printed[0] and "PREFER_RECOMPUTE" in printed[0]
    stoker.compile(program, backend=stoker.aot(show, show))(x, x).sum().backward()
    assert len(printed) == 3
