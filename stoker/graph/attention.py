"""Calls of cuDNN's attention in a graph for inference, and what may stand for them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

CUDNN = torch.ops.aten._scaled_dot_product_cudnn_attention.default
"""It takes query, key, value, bias, whether sums are wanted, a share to drop, and whether later keys are hidden; and a scale."""


def is_plain(node: Node) -> bool:
    """Is it a call of which nothing but the result is read, and where nothing is dropped, nor hidden but by a bias?"""
    if node.target is not CUDNN:
        return False
    usual: list[Any] = [False, 0.0, False]
    _, dropped, causal = [*node.args[4:], *usual[max(len(node.args) - 4, 0) :]][:3]
    return not dropped and not causal and all(not user.users or user.args[1] == 0 for user in node.users)


def size(node: Any, dimension: int) -> Any:
    """Of the tensor that a node gives."""
    return node.meta["val"].shape[dimension]


def hand_over(graph: Graph, node: Node, result: Node) -> None:
    """Whoever read the call's result reads another; the call is gone."""
    for read in [user for user in node.users if user.target is operator.getitem]:
        read.replace_all_uses_with(result)
        graph.erase_node(read)
    graph.erase_node(node)
