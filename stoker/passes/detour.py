"""Values that take a detour over the processor stay on the device.

In:  a functional ATen graph of a device, parts of which are computed on the processor.
Out: the same graph, changed: what is made on the processor and read on the device alone is computed there, where every operator on the
     way gives the same bits on both. How many values moved.

A detour costs a copy, and a wait, at each end; and a graph with one cannot be recorded whole.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from stoker import torch_private
from stoker.graph.facts import device_of, fake_of
from stoker.graph.insert import insert
from stoker.passes.precompute import IN_LOOPS

aten = torch.ops.aten
_COPY = aten._to_copy.default
_MEMORY = ("device", "layout", "pin_memory", "non_blocking")
_COUNTS = frozenset({aten.arange.default, aten.arange.start, aten.arange.start_step})
MOST_ELEMENTS = 1 << 16
"""More than this is not moved: it may be on the processor to save the device's memory."""


def straighten(graph: Graph) -> int:
    """Move in place."""
    devices = {d for n in graph.nodes if (d := device_of(n)) is not None and d.type not in ("cpu", "meta")}
    if len(devices) != 1:
        return 0
    (device,) = devices
    moved = _settled({n for n in graph.nodes if _may_move(n)}, device)
    there: dict[Node, Node] = {}
    for node in [n for n in graph.nodes if n in moved]:
        with graph.inserting_before(node):
            there[node] = _on_device(graph, node, there, device)
    for node in moved:
        for user in list(node.users):
            if user not in moved:
                user.replace_input_with(node, there[node])
    for node in reversed(list(graph.nodes)):
        if node in moved:
            graph.erase_node(node)
    return len(moved)


def _may_move(node: Node) -> bool:
    """Is it computed on the processor, by an operator that gives the same bits on the device?"""
    value = fake_of(node)
    if node.op != "call_function" or value is None or value.meta.device.type != "cpu" or value.meta.symbolic:
        return False
    if node.target in _COUNTS and value.meta.dtype.is_floating_point:
        return False
    return node.target in IN_LOOPS and value.numel() <= MOST_ELEMENTS


def _settled(found: set[Node], device: torch.device) -> set[Node]:
    """Those whose operands move too, or are on the device, and that nobody on the processor reads."""
    while True:
        stays = {
            node
            for node in found
            if not all(n in found or device_of(n) == device for n in node.all_input_nodes)
            or not all(u in found or (u.target is _COPY and device_of(u) == device) for u in node.users)
        }
        if not stays:
            return found
        found = found - stays


def _on_device(graph: Graph, node: Node, there: dict[Node, Node], device: torch.device) -> Node:
    arguments: Any = torch.fx.node.map_arg(node.args, lambda n: there.get(n, n))
    keywords: dict[str, Any] = torch.fx.node.map_arg(dict(node.kwargs), lambda n: there.get(n, n))
    keywords = {name: value for name, value in keywords.items() if name not in _MEMORY}
    assert isinstance(node.target, torch_private.OpOverload), "IN_LOOPS has operators of ATen"
    schema = torch_private.schema_of(node.target)
    if any(argument.name == "device" for argument in schema.arguments):
        keywords["device"] = device
    return insert(graph, node, node.target, *arguments, **keywords)
