"""Which nodes does the result of a graph need?"""

from __future__ import annotations

from torch.fx import Graph, Node


def prune(graph: Graph) -> frozenset[Node]:
    """The nodes that the outputs depend on, and the inputs."""
    needed: set[Node] = {n for n in graph.nodes if n.op == "placeholder"}
    pending = [n for n in graph.nodes if n.op == "output"]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return frozenset(needed | {n for n in graph.nodes if n.op == "placeholder"})
