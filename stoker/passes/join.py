"""Linear layers of one input become one: the projections to queries, keys and values, or a gate and what it lets through.

In:  a functional inference graph, and the names of the inputs that are weights.
Out: the same graph, changed: where that measures faster, one matrix product with the weights side by side, which
     `stoker.passes.freeze` keeps, and views of its columns; what the program returns, or looks at by its place in memory, is a
     copy of them.

The copy of the weights costs memory, and what it saves is most of all the cost of calls: weights of more than `LARGEST_BYTES` stay
apart.

What must hold: each layer is a sum over the same numbers as before, so results differ by rounding alone. Layers with a function
behind them that a library takes in are left to `stoker.passes.pack`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker.graph.dedupe import dedupe
from stoker.graph.insert import insert, move_up
from stoker.passes.freeze import fixed_nodes, is_view
from stoker.passes.pack import function_behind

aten = torch.ops.aten
ChooseJoin = Callable[[int, int, tuple[int, ...]], bool]
"""Are linear layers of (rows, inputs, outputs of each) faster as one?"""

LARGEST_BYTES = 1 << 21
JOINED = "joined weights"
"""The mark, in a node's meta, of values to keep."""


def join(module: GraphModule, weights: Collection[str], faster: ChooseJoin) -> int:
    """Join in place, where the weights are small; how many layers went away."""
    graph, gone = module.graph, 0
    fixed, same = fixed_nodes(graph, weights), dedupe(graph)
    groups: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        if node.target in (aten.addmm.default, aten.mm.default) and _plain(node, fixed):
            x = node.args[-2]
            groups.setdefault((node.target, same.get(x, x)), []).append(node)
    for group in groups.values():
        if len(group) > 1:
            rows, inputs = group[0].args[-2].meta["val"].shape  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
            outputs = tuple(n.meta["val"].shape[1] for n in group)
            if 4 * inputs * sum(outputs) <= LARGEST_BYTES and faster(rows, inputs, outputs):
                _join(graph, group)
                gone += len(group) - 1
    return gone


def _plain(node: Node, fixed: set[Node]) -> bool:
    """A layer of weights alone, in float32, of known size, with a bias for each output if any."""
    bias, x, weight = node.args if node.target is aten.addmm.default else (None, *node.args)
    value = node.meta["val"]
    if node.kwargs or weight not in fixed or node in fixed:
        return False
    if value.dtype is not torch.float32 or value.device.type != "cpu":
        return False
    if any(not isinstance(s, int) for s in (*value.shape, *x.meta["val"].shape)) or not value.numel():  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
        return False
    if bias is not None and (bias not in fixed or tuple(bias.meta["val"].shape) != (value.shape[1],)):  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
        return False
    return function_behind(node)[1] == "none"


def _join(graph: Graph, group: list[Node]) -> None:
    first = group[0]
    call = functools.partial(insert, graph, first)
    for node in group:
        for operand in (node.args[-1], *node.args[:-2]):
            move_up(graph, operand, first)  # type: ignore[arg-type]  # fx types arguments loosely: here they are nodes
    with graph.inserting_before(first):
        weight = call(aten.cat.default, [n.args[-1] for n in group], 1)
        parts = [call(aten.cat.default, [n.args[0] for n in group], 0)] if first.target is aten.addmm.default else []
        for kept in (weight, *parts):
            kept.meta[JOINED] = True
        whole = call(first.target, *parts, first.args[-2], weight)
        start = 0
        for node in group:
            end = start + node.meta["val"].shape[1]
            columns = call(aten.slice.Tensor, whole, 1, start, end)
            if _shows_memory(node):
                columns = call(aten.clone.default, columns)
            node.replace_all_uses_with(columns)
            start = end
    for node in group:
        graph.erase_node(node)


def _shows_memory(node: Node) -> bool:
    """Do views of it reach what tells how it lies in memory: the graph's output, or an operator that goes by strides?"""
    return any(
        user.op == "output" or user.target in _BY_STRIDES or is_view(user) and _shows_memory(user)
        for user in node.users
    )


_BY_STRIDES = frozenset({aten.as_strided.default, aten.view.dtype})
