"""Which nodes of a graph compute the same?

A graph is functional, so a call is known by its operator and arguments; calls that draw random numbers, or of operators that may keep
state, are all different. Sums and products are the same in either order, unless the order decides how the result lies in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.graph.facts import alike
from stoker.graph.walk import runs_once

aten = torch.ops.aten
_EITHER_WAY = frozenset({aten.add.Tensor, aten.mul.Tensor, aten.eq.Tensor, aten.ne.Tensor})


def dedupe(graph: Graph) -> dict[Node, Node]:
    """For each node that repeats an earlier one: that earlier one."""
    same: dict[Node, Node] = {}
    first: dict[Any, Node] = {}
    for node in graph.nodes:
        if node.op == "call_function" and not runs_once(node):
            args, kwargs = _key(node.args, same), _key(node.kwargs, same)
            found = first.setdefault((node.target, args, kwargs), node)
            if found is node and node.target in _EITHER_WAY and not node.kwargs and len(args) == 2:
                turned = first.get((node.target, args[::-1], kwargs), node)
                found = turned if alike(turned, node) else node
            if found is not node:
                same[node] = found
    return same


def _key(value: Any, same: dict[Node, Node]) -> Any:
    """A hashable form of arguments: 1, 1.0 and True are different."""
    if isinstance(value, Node):
        return same.get(value, value)
    if isinstance(value, dict):
        return tuple((name, _key(v, same)) for name, v in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_key(v, same) for v in value)
    return type(value), repr(value)
