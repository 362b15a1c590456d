"""Which nodes does a graph need: those its outputs depend on, those that draw random numbers, because later draws follow,
assertions, and those that may raise."""

from __future__ import annotations

from torch.fx import Graph, Node

from stoker.graph.raising import raises_by_data
from stoker.graph.walk import ancestors, has_effect


def prune(graph: Graph) -> frozenset[Node]:
    """The nodes to keep; inputs are kept always."""
    needed = ancestors(n for n in graph.nodes if n.op == "output" or has_effect(n) or raises_by_data(n))
    return frozenset(needed | {n for n in graph.nodes if n.op == "placeholder"})
