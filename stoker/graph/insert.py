"""New calls in a graph, with metadata of their own; and nodes moved."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node


def insert(graph: Graph, like: Node, target: Any, *arguments: Any, **keywords: Any) -> Node:
    """A call at the graph's place of insertion, with metadata of its own, of the program's line that `like` is of."""
    node = graph.call_function(target, arguments, keywords)
    fakes = torch.fx.node.map_arg(arguments, lambda n: n.meta["val"])
    with like.meta["val"].memory.mode, torch.no_grad():
        node.meta = dict(like.meta) | {"val": target(*fakes, **keywords)}
    return node


def move_up(graph: Graph, node: Node, before: Node) -> None:
    """Put a node and what it needs in front of another."""
    position = {n: i for i, n in enumerate(graph.nodes)}
    needed, pending = set[Node](), [node]
    while pending:
        current = pending.pop()
        if current not in needed and position[current] > position[before]:
            needed.add(current)
            pending.extend(current.all_input_nodes)
    for current in sorted(needed, key=position.__getitem__):
        before.prepend(current)
