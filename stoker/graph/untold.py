"""Numbers that only data tells, in the values of a graph's nodes.

In:  nodes of a functional ATen graph, or their values.
Out: the symbols that have no hint, and the operators that tell them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from stoker.fake import FakeTensor
from stoker.nest import leaves
from stoker.shape.symnode import expr_of, size_of
from stoker.shape.walk import free_symbols


def tells(node: Node) -> bool:
    """Does a node find out a number in the content of its operands?"""
    found = untold(node.meta.get("val"))
    return bool(found) and not found <= frozenset().union(*(untold(n.meta.get("val")) for n in node.all_input_nodes))


def symbols_in(value: Any) -> frozenset[Any]:
    """The symbols in a value, as it was traced and with what is known since: a promise may have fixed a size that is yet to be
    checked."""
    numbers: list[Any] = []
    for leaf in leaves(value):
        if isinstance(leaf, FakeTensor):
            numbers += (*leaf.meta.sizes, *leaf.meta.strides) if leaf.meta.symbolic else ()
        else:
            numbers.append(leaf)
    found: set[Any] = set()
    for number in numbers:
        if isinstance(number, torch.SymInt):
            found |= free_symbols(expr_of(number)) | free_symbols(size_of(number))
        elif isinstance(number, torch.SymFloat):
            found |= number.node.recipe.symbols
    return frozenset(found)


def untold(value: Any) -> frozenset[Any]:
    """The symbols in a value that have no hint."""
    if isinstance(value, FakeTensor) and not value.meta.symbolic:
        return frozenset()
    env = next((e for leaf in leaves(value) if (e := _environment(leaf)) is not None), None)
    return frozenset() if env is None else frozenset(s for s in symbols_in(value) if not env.knows(s))


def _environment(leaf: Any) -> Any:
    if isinstance(leaf, FakeTensor) and leaf.meta.symbolic:
        return leaf.memory.mode.shape_env
    return leaf.node.shape_env if isinstance(leaf, (torch.SymInt, torch.SymFloat)) else None
