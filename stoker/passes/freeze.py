"""Split off what depends on weights alone: it is computed once, and again only when a weight changes.

In:  a functional graph, and the names of the inputs that are weights.
Out: `Frozen`: the rest of the graph, with the kept values as further inputs; and the graph that prepares them from the weights.

What must hold: the two together compute what the graph did. `stoker._C.FrozenCall` puts them together, and sees to it that
kept values are those of the present weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.graph.insert import copied_input, copied_node
from stoker.graph.raising import raises_by_data
from stoker.graph.walk import ancestors, has_effect


@dataclass(frozen=True)
class Frozen:
    """`watched` are the positions of the inputs that `prepare` takes."""

    rest: GraphModule
    prepare: GraphModule
    watched: tuple[int, ...]


def freeze(module: GraphModule, weights: Collection[str], worth: Callable[[Node], bool]) -> Frozen | None:
    """Keep the values that weights determine and that are `worth` keeping; None if there are none."""
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    fixed = fixed_nodes(module.graph, weights)
    kept = [
        n
        for n in module.graph.nodes
        if n in fixed and n.op == "call_function" and worth(n) and any(u not in fixed for u in n.users)
    ]
    if not kept:
        return None
    needed = ancestors(kept)
    watched = tuple(i for i, n in enumerate(inputs) if n in needed)
    return Frozen(_rest(module, kept), _prepare(module, needed, kept), watched)


def fixed_nodes(graph: Graph, weights: Collection[str]) -> set[Node]:
    """The nodes whose value weights determine."""
    fixed: set[Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            known = node.name in weights
        elif node.op == "call_function":
            known = bool(node.all_input_nodes) and not has_effect(node) and fixed.issuperset(node.all_input_nodes)
        else:
            known = node.op == "get_attr"
        if known:
            fixed.add(node)
    return fixed


def _rest(module: GraphModule, kept: list[Node]) -> GraphModule:
    graph, copied = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            copied_input(graph, node, copied)
    for node in kept:
        copied_input(graph, node, copied, f"kept_{node.name}")
    wanted = ancestors(
        [n for n in module.graph.nodes if n.op == "output" or has_effect(n) or raises_by_data(n)], frozenset(copied)
    )
    for node in module.graph.nodes:
        if node not in copied and node in wanted:
            copied_node(graph, node, copied)
    return torch_private.LazyGraphModule(module, graph, "Rest")


def _prepare(module: GraphModule, needed: set[Node], kept: list[Node]) -> GraphModule:
    graph, copied = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        if node in needed:
            (copied_input if node.op == "placeholder" else copied_node)(graph, node, copied)
    graph.output(tuple(copied[n] for n in kept))
    return torch_private.LazyGraphModule(module, graph, "Prepare")


def is_view(node: Node) -> bool:
    """Does a node only look at memory? There is nothing to save in keeping it."""
    alias = getattr(node.target, "_schema", None)
    return alias is not None and any(r.alias_info is not None for r in alias.returns)


def preparer(frozen: Frozen) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The function from weights to kept values."""
    forward = torch_private.write_code(frozen.prepare).forward

    def prepare(*weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.inference_mode(False), torch.no_grad():
            return forward(*(w.detach() for w in weights))

    return prepare
