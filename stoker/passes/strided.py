"""Copies that make heads dense before an attention kernel go: on a GPU its kernels read them where they lie.

In:  a functional inference graph.
Out: the same graph, changed: attention reads what was copied, and its result lies as eager's would for such a query; who sees its strides is
     given a copy of the old ones. How many copies.

Programs call `contiguous` on heads for kernels that wanted it once. What is read in place has unit stride along a head, and begins where
vectors may be read (`VECTOR` elements); what is repeated by a stride of 0 stays copied.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.decompose.registry import find
from stoker.fake.meta import contiguous_strides
from stoker.graph.facts import fake_of
from stoker.graph.insert import insert

aten = torch.ops.aten
KERNELS = frozenset(find(f"_scaled_dot_product_{kind}_attention") for kind in ("flash", "efficient", "cudnn")) - {None}
VECTOR = 8
"""Elements that a kernel reads at a time."""
_DENSE = (None, torch.contiguous_format)
_TURNS = frozenset({aten.transpose.int, aten.permute.default})


def read_in_place(graph: Graph, kernels: frozenset[Any] = KERNELS) -> int:
    """Take the copies out."""
    count = 0
    for node in list(graph.nodes):
        if node.target in kernels and _result_is_plain(node):
            given = [_source(argument) for argument in node.args[:3]]
            copies = sum(new is not old for new, old in zip(given, node.args))
            if copies:
                _exchange(graph, node, given)
                count += copies
    return count


def _result_is_plain(node: Node) -> bool:
    """Is nothing but the result read, dense as it is after dense heads?"""
    read = [user for user in node.users if user.users]
    return all(user.target is operator.getitem and user.args[1] == 0 and _is_plain(user) for user in read)


def _is_plain(node: Node) -> bool:
    fake = fake_of(node)
    return fake is not None and fake.meta.strides == contiguous_strides(fake.meta.sizes)


def _source(node: Any) -> Any:
    """What a copy is of, if it can be read in place."""
    if not isinstance(node, Node) or node.target is not aten.clone.default:
        return node
    if node.kwargs.get("memory_format") not in _DENSE:
        return node
    fake = fake_of(node.args[0])
    if fake is None or len(fake.meta.sizes) != 4 or fake.meta.strides[3] != 1:
        return node
    steps = (*fake.meta.strides[:3], fake.meta.offset)
    aligned = all(isinstance(s, int) and s % VECTOR == 0 for s in steps) and all(fake.meta.strides)
    return node.args[0] if aligned else node


def _exchange(graph: Graph, node: Node, given: list[Any]) -> None:
    copies = [c for c, new in zip(node.args, given) if isinstance(c, Node) and c is not new]
    with graph.inserting_before(node):
        made = insert(graph, copies[0], node.target, *given, *node.args[3:], **node.kwargs)
        made.meta = dict(node.meta) | {"val": made.meta["val"]}
        new = insert(graph, copies[0], operator.getitem, made, 0)
    for old in [user for user in node.users if user.users]:
        for reader in list(old.users):
            _redirect(graph, reader, old, new)
    for dead in [*node.users, node, *dict.fromkeys(copies)]:
        if not dead.users:
            graph.erase_node(dead)


def _redirect(graph: Graph, reader: Node, old: Node, new: Node) -> None:
    """Give a reader the new result: as it lies, if all that reads it turned copies it; else with the old strides."""
    with graph.inserting_before(reader):
        if reader.target in _TURNS and all(u.target is aten.clone.default for u in reader.users):
            turned = insert(graph, reader, reader.target, new, *reader.args[1:], **reader.kwargs)
            reader.replace_all_uses_with(turned)
            graph.erase_node(reader)
        else:
            reader.replace_input_with(
                old, insert(graph, old, aten.clone.default, new, memory_format=torch.contiguous_format)
            )
