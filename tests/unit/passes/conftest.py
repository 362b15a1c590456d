"""Functional graphs for passes to work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

from stoker.autograd import aot
from stoker.pipeline import decompositions


@pytest.fixture
def functional() -> Callable[..., GraphModule]:
    return _functional


@pytest.fixture
def operators() -> Callable[[GraphModule], list[str]]:
    return _operators


def _functional(program: Callable[..., Any], *inputs: Any) -> GraphModule:
    """The functional graph of a program."""
    graph, made = Graph(), []
    places = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    graph.output((graph.call_function(program, tuple(places)),))

    def keep(module: GraphModule, fakes: list[Any]) -> Any:
        made.append(module)
        return module.forward

    aot(GraphModule(torch.nn.Module(), graph), list(inputs), forward_compiler=keep, decompositions=decompositions())
    return made[0]


def _operators(module: GraphModule) -> list[str]:
    return [str(n.target).removeprefix("aten.") for n in module.graph.nodes if n.op == "call_function"]
