"""Whole models through capture: one graph, no break, equal to eager bit for bit, no second compilation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._pytree import tree_leaves

import stoker
from bench.zoo import ZOO
from stoker import log


class Recording:
    """A back end that keeps the graphs it is given and runs them with eager PyTorch."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph_module: torch.fx.GraphModule, example_inputs: list[object]):
        self.graphs.append(graph_module)
        return graph_module.forward


def run(model, inputs):
    torch.manual_seed(1)
    return model(**inputs)


def assert_same(expected, found):
    assert type(expected) is type(found)
    assert list(expected.keys()) == list(found.keys())
    pairs = list(zip(tree_leaves(dict(expected)), tree_leaves(dict(found)), strict=True))
    assert pairs
    for a, b in pairs:
        if isinstance(a, torch.Tensor):
            assert a.requires_grad == b.requires_grad
            assert torch.equal(a, b)


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_one_graph(name: str, train: bool):
    torch.manual_seed(0)
    log.clear()
    model, inputs = ZOO[name]()
    model.train(train)
    other_weights, compiled = copy.deepcopy(model), copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other_weights.parameters():
            parameter.add_(0.01)
    backend = Recording()
    compiled = stoker.compile(compiled, backend=backend)

    assert_same(run(model, inputs), run(compiled, inputs))
    assert [event.reason for event in log.events("break")] == []
    assert [event.reason for event in log.events("skip")] == []
    assert len(backend.graphs) == 1

    compiled.load_state_dict(other_weights.state_dict())
    model.load_state_dict(other_weights.state_dict())
    varied = {key: value.flip(0).contiguous() for key, value in inputs.items()}
    assert_same(run(model, varied), run(compiled, varied))
    assert len(backend.graphs) == 1
