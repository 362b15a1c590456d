"""Fold what follows a convolution channel by channel, such as BatchNorm in evaluation, into its weight and bias.

In:  a functional graph, and the names of the inputs that are weights.
Out: the same graph, changed: a chain of additions, subtractions, products and quotients with a value of the channel that
     weights determine is gone, and the convolution's weight and bias are computed from weights.

Rounding differs from eager's in the last digits, so this is done only when asked for (`options.freezing`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker.graph.insert import insert, move_up
from stoker.passes.freeze import fixed_nodes

aten = torch.ops.aten
_SCALES = (aten.mul.Tensor, aten.div.Tensor)
_SHIFTS = (aten.add.Tensor, aten.sub.Tensor)


def fold(module: GraphModule, weights: Collection[str]) -> int:
    """Fold in place; how many operators went away."""
    graph, folded = module.graph, 0
    fixed = fixed_nodes(graph, weights)
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and node.args[1] in fixed and node.args[2] in (*fixed, None):
            folded += _fold_after(graph, node, fixed)
    return folded


def _fold_after(graph: Graph, conv: Node, fixed: set[Node]) -> int:
    """Fold the chain behind one convolution."""
    transposed = bool(conv.args[6])
    channels = conv.meta["val"].shape[1]
    count = 0
    while len(conv.users) == 1 and not transposed:
        (user,) = conv.users
        if user.target is torch.ops.stoker.normalize.default and user.args[0] is conv:
            user = _taken_apart(graph, user, fixed)
        other = _per_channel(user, conv, channels, fixed)
        if other is None or not _same_kind(user.meta["val"], conv.meta["val"]):
            break
        with graph.inserting_before(conv):
            weight, bias = _updated(graph, conv, user, other, channels, fixed)
        conv.args = (conv.args[0], weight, bias, *conv.args[3:])
        user.replace_all_uses_with(conv)
        graph.erase_node(user)
        count += 1
    return count


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _taken_apart(graph: Graph, norm: Node, fixed: set[Node]) -> Node:
    """A norm by values of the channels as the steps it is made of, in place; the first of them."""
    value, *channels = norm.args
    shape = [1, -1, *(1,) * (norm.meta["val"].dim() - 2)]
    steps: list[Node] = []
    with graph.inserting_before(norm):
        for target, given in zip((aten.sub.Tensor, aten.mul.Tensor, aten.mul.Tensor, aten.add.Tensor), channels):
            if given is not None:
                other = insert(graph, norm, aten.view.default, given, shape)
                if given in fixed:
                    fixed.add(other)
                steps.append(insert(graph, norm, target, steps[-1] if steps else value, other))
    norm.replace_all_uses_with(steps[-1])
    graph.erase_node(norm)
    return steps[0]


def _per_channel(user: Node, conv: Node, channels: int, fixed: set[Node]) -> Any:
    """The other operand of `user`, if it is one number for each channel and comes before the convolution."""
    if user.target not in (*_SCALES, *_SHIFTS) or user.kwargs or len(user.args) != 2:
        return None
    first, second = user.args
    if user.target in (aten.div.Tensor, aten.sub.Tensor) and first is not conv:
        return None
    other = second if first is conv else first
    if isinstance(other, (int, float)):
        return other
    if not isinstance(other, Node) or other not in fixed:
        return None
    shape = tuple(other.meta["val"].shape)
    rank = conv.meta["val"].dim()
    wide = (1,) * (rank - len(shape)) + shape
    suits = wide == (1, channels, *(1,) * (rank - 2)) and other.meta["val"].dtype is conv.meta["val"].dtype
    return other if suits else None


def _updated(graph: Graph, conv: Node, user: Node, other: Any, channels: int, fixed: set[Node]) -> tuple[Node, Any]:
    """The convolution's weight and bias with one more operation in them."""

    def call(target: Any, *arguments: Any) -> Node:
        node = insert(graph, conv, target, *arguments)
        fixed.add(node)
        return node

    if isinstance(other, Node):
        move_up(graph, other, conv)
        other = call(aten.reshape.default, other, [channels])
    weight, bias = conv.args[1], conv.args[2]
    if user.target in _SHIFTS:
        if bias is None:
            bias = call(aten.new_zeros.default, weight, [channels])
        return weight, call(user.target, bias, other)  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
    rows = [channels, *(1,) * (conv.args[1].meta["val"].dim() - 1)]  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
    scale = call(aten.reshape.default, other, rows) if isinstance(other, Node) else other
    return call(user.target, weight, scale), None if bias is None else call(user.target, bias, other)
