"""Operands on another device than the result are moved there.

In:  a functional ATen graph. Eager takes tensors without dimensions, and indices, on the processor beside tensors on a device.
Out: the same graph, changed: where a loop would read such an operand, it reads a copy on its own device. How many copies there are.
     Tensors without dimensions may stay: kernels take their values when they are launched, which nobody has to copy or wait for.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.graph.facts import device_of, fake_of
from stoker.graph.insert import insert

aten = torch.ops.aten
COPIES = frozenset({aten._to_copy.default, aten.clone.default, aten.lift_fresh_copy.default})


def place(graph: Graph, in_loops: Container[Any], by_value: Container[torch.dtype]) -> int:
    """Move operands of the operators that become loops, in place; but for single numbers of the processor of some types."""
    copies: dict[tuple[Node, torch.device], Node] = {}
    for node in list(graph.nodes):
        device = device_of(node)
        if node.op != "call_function" or node.target not in in_loops or node.target in COPIES or device is None:
            continue
        for given in node.all_input_nodes:
            taken = is_number(given) and given.meta["val"].dtype in by_value
            if device_of(given) not in (None, device) and not taken:
                if (given, device) not in copies:
                    with graph.inserting_after(_after(graph, given)):
                        copies[given, device] = insert(graph, given, aten._to_copy.default, given, device=device)
                node.replace_input_with(given, copies[given, device])
    return len(copies)


def is_number(node: Node) -> bool:
    """Is it a tensor without dimensions on the processor?"""
    value = fake_of(node)
    return value is not None and value.meta.device.type == "cpu" and not value.meta.sizes


def _after(graph: Graph, node: Node) -> Node:
    """Where a copy of a node stands: behind it, and behind all inputs."""
    return node if node.op != "placeholder" else [n for n in graph.nodes if n.op == "placeholder"][-1]
