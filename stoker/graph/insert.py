"""New calls in a graph, with metadata of their own; and nodes moved."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private


def call(graph: Graph, target: Any, arguments: Any, keywords: Any = None, name: str | None = None) -> Node:
    """A call at the graph's place of insertion. Its arguments are given to it when it is there: with them, `create_node` looks through
    all of them for symbolic numbers, which takes longer than all else it does."""
    node = graph.create_node("call_function", target, name=name or _word(target))
    node.args = arguments
    if keywords:
        node.kwargs = keywords
    return node


def copy_call(graph: Graph, node: Node, copied: Callable[[Node], Any]) -> Node:
    """A call of another graph, with its name, in this one."""
    arguments, keywords = torch.fx.node.map_arg((node.args, node.kwargs), copied)
    return call(graph, node.target, arguments, keywords, node.name)


def _word(target: Any) -> str | None:
    """What nodes that call an operator are named after; None for others, which torch.fx finds a name for."""
    return _operator_word(target) if isinstance(target, torch_private.OpOverload) else None


@functools.cache
def _operator_word(operator: Any) -> str:
    node: Node = Graph().call_function(operator)
    return node.name


def insert(graph: Graph, like: Node, target: Any, *arguments: Any, **keywords: Any) -> Node:
    """A call at the graph's place of insertion, with metadata of its own, of the program's line that `like` is of."""
    node = graph.call_function(target, arguments, keywords)
    fakes = torch.fx.node.map_arg(arguments, lambda n: n.meta["val"])
    with like.meta["val"].memory.mode, torch.no_grad():
        node.meta = dict(like.meta) | {"val": target(*fakes, **keywords)}
    return node


def exchange_each(graph: Graph, suits: Callable[[Node], bool], exchange: Callable[[Graph, Node], None]) -> int:
    """Exchange each node that suits, in place; how many did."""
    count = 0
    for node in list(graph.nodes):
        if suits(node):
            exchange(graph, node)
            count += 1
    return count


Keeps = Callable[[Node], bool]


def exchanged(
    module: GraphModule, match: Callable[[Node], Any], exchange: Callable[[Node, Any], None], keeps: Keeps
) -> GraphModule:
    """The module itself, or a copy in which each node that matches is exchanged; what is then unread, and not said to be kept, is gone."""
    if not any(match(node) for node in module.graph.nodes):
        return module
    changed = torch_private.graph_module(module, copy.deepcopy(module.graph))
    changed.meta = module.meta
    for node in list(changed.graph.nodes):
        if (form := match(node)) is not None:
            exchange(node, form)
    changed.graph.eliminate_dead_code(is_impure_node=keeps)
    changed.recompile()
    return changed


def copied_node(graph: Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """A node of another graph, with what is known of it, in this one, where its operands have copies."""
    made = graph.node_copy(node, copies.__getitem__)
    made.meta = dict(node.meta)
    copies[node] = made
    return made


def copied_input(graph: Graph, node: Node, copies: dict[Node, Node], name: str | None = None) -> Node:
    """A value of another graph, as an input of this one."""
    made = graph.placeholder(name or node.name)
    made.meta = dict(node.meta)
    copies[node] = made
    return made


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
