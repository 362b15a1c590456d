"""What is kept: random values always, little with a small budget, nothing computed from what was not kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import keep_all, min_cut
from stoker.autograd.inputs import make_inputs
from stoker.autograd.joint import Joint, trace_joint
from stoker.autograd.keep import size_bytes
from stoker.autograd.partition import is_random, split


def joint_of(function: Any, *shapes: tuple[int, ...]) -> Joint:
    graph = torch.fx.symbolic_trace(function)
    inputs = [torch.randn(*s, requires_grad=True) for s in shapes]
    return trace_joint(graph, make_inputs(graph, inputs), None, grad=True)


def deep(x: torch.Tensor, w: torch.Tensor) -> Any:
    for _ in range(4):
        x = F.gelu(F.dropout(torch.softmax(x @ w, -1), 0.5)) * x.sin()
    return (x,)


def test_random_operators_run_once() -> None:
    parts = split(joint_of(deep, (8, 16), (16, 16)), min_cut(0.0))
    assert any(is_random(n) for n in parts.forward.graph.nodes)
    assert not any(is_random(n) for n in parts.backward.graph.nodes)


def test_budget_is_monotone() -> None:
    joint = joint_of(deep, (8, 16), (16, 16))
    kept = [sum(map(size_bytes, min_cut(b)(joint))) for b in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1] <= sum(map(size_bytes, keep_all(joint)))


def test_budget_is_a_share() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        min_cut(1.5)


def test_cheap_chains_are_computed_again() -> None:
    joint = joint_of(lambda x: (x.sin().cos().exp().tanh().sum(),), (64,))
    assert [n.op for n in min_cut()(joint)] == ["placeholder"]


def test_nodes_know_their_metadata() -> None:
    joint = joint_of(deep, (8, 16), (16, 16))
    for node in joint.graph.nodes:
        assert "val" in node.meta and node.meta["phase"] in ("forward", "backward")


def test_graphs_write_nothing() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        y[0].add_(1)
        return (y.relu_(),)

    for node in joint_of(program, (3, 4)).graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            assert not node.target._schema.is_mutable, node.target
