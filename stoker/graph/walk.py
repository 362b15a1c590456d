"""Questions about the nodes of a joint graph."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Node

from stoker import torch_private


def ancestors(nodes: Iterable[Node], stop: frozenset[Node] = frozenset()) -> set[Node]:
    """The nodes and all they are computed from, not going past `stop`."""
    return _reached(nodes, lambda node: () if node in stop else node.all_input_nodes)


def descendants(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and all that is computed from them."""
    return _reached(nodes, lambda node: node.users)


def _reached(nodes: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> set[Node]:
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += following(node)
    return seen


TORCHS_OWN = ("aten", "prims", "mkl", "mkldnn")
"""Libraries of operators that are known: they compute the same of the same, but for those that draw."""
OURS = "stoker"


def is_random(node: Node) -> bool:
    """Does it draw random numbers?"""
    return draws(_operator(node))


def runs_once(node: Node) -> bool:
    """Does each call count? Then it runs as often as the program says and in that order, also if nobody reads the result."""
    return _counts(_operator(node))


@functools.lru_cache(maxsize=1 << 12)
def _counts(operator: Any) -> bool:
    """Remembered: a graph has many nodes of few operators, and is asked about each several times."""
    return draws(operator) or keeps_state(operator)


def _operator(node: Node) -> Any:
    """What is called; of a call on copies, what is called on them."""
    return node.args[0] if node.args and isinstance(node.args[0], torch_private.OpOverload) else node.target


def draws(operator: Any) -> bool:
    """Does an operator draw from a generator?"""
    return isinstance(operator, torch_private.OpOverload) and torch.Tag.nondeterministic_seeded in operator.tags


def keeps_state(operator: Any) -> bool:
    """May it remember earlier calls? Of operators that users registered nothing is known."""
    return isinstance(operator, torch_private.OpOverload) and operator.namespace not in (*TORCHS_OWN, OURS)


def has_effect(node: Node) -> bool:
    """Must it run though nobody reads a result?"""
    if runs_once(node):
        return True
    return isinstance(node.target, torch_private.OpOverload) and not torch_private.schema_of(node.target).returns


def size_bytes(node: Node) -> int:
    """Bytes of a value; symbolic sizes count by their hints."""
    value = node.meta["val"]
    return tensor_bytes(value) if isinstance(value, torch.Tensor) else 8


UNKNOWN_SIZE = 4096
"""What a size that only data tells is taken for where bytes are compared."""


def tensor_bytes(tensor: torch.Tensor) -> int:
    count = 1
    for size in tensor.shape:
        count *= size if isinstance(size, int) else size.node.require_hint(UNKNOWN_SIZE)
    return count * tensor.dtype.itemsize


def is_view(node: Node) -> bool:
    """Does it only look at memory that an argument has? Keeping it keeps that memory. So do several tensors, such as `unbind` gives."""
    return viewed(node) is not None


def viewed(node: Node) -> Node | None:
    """Whose memory a node only looks at; one of several tensors looks at that of what these were made of."""
    operand = node.args[0] if node.args else None
    if node.target is operator.getitem and isinstance(operand, Node):
        operand = operand.args[0] if operand.args else None
    if not isinstance(operand, Node) or not isinstance(base := operand.meta["val"], torch.Tensor):
        return None
    value = node.meta["val"]
    values = value if isinstance(value, (list, tuple)) else (value,)
    looks = all(isinstance(v, torch.Tensor) and v.memory is base.memory for v in values)  # type: ignore[attr-defined]  # fake tensors, which this layer does not know
    return operand if values and looks else None
