"""Weights of convolutions with channels fastest in memory, on a GPU.

In:  a functional inference graph, and the names of the inputs that are weights.
Out: the same graph, changed: a convolution of images reads its weight in the order that cuDNN's fast kernels want, from a copy that
     `stoker.passes.freeze` keeps; the images themselves are laid out so by `stoker.lower.conv`. How many weights.

Without `freezing` weights are reordered at each call: writes through `.data` are seen by nobody, so nothing is kept.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch.fx import GraphModule, Node

from stoker.graph.facts import fake_of
from stoker.graph.insert import insert
from stoker.passes.freeze import fixed_nodes

aten = torch.ops.aten


def channels_last(module: GraphModule, weights: Collection[str]) -> int:
    """Reorder in place."""
    graph, fixed = module.graph, fixed_nodes(module.graph, weights)
    count = 0
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and node not in fixed and _suits(node, fixed):
            with graph.inserting_before(node):
                weight = node.args[1]
                turned = insert(graph, node, aten.clone.default, weight, memory_format=torch.channels_last)
            node.replace_input_with(weight, turned)
            count += 1
    return count


def _suits(node: Node, fixed: Collection[Node]) -> bool:
    """Images on a GPU, not transposed, and a weight that is not so already."""
    weight, value = fake_of(node.args[1]), fake_of(node)
    if weight is None or value is None or node.args[1] not in fixed or node.args[6]:
        return False
    on_gpu = value.device.type == "cuda" and value.dim() == 4
    return on_gpu and not weight.is_contiguous(memory_format=torch.channels_last)
