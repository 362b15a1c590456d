"""The history that autograd keeps of a tensor: the nodes behind it, what they saved, where they end."""

from __future__ import annotations

import functools
from typing import Any

import torch

FREED = "Trying to backward through the graph a second time"
"""In the message of torch's error for a history that an earlier backward used up."""


def nodes_behind(node: Any) -> set[Any]:
    """A node of autograd and all that a backward from it may reach."""
    found, pending = set(), [node]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += (following for following, _ in node.next_functions)
    return found


def leaves_behind(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that a backward from a tensor accumulates into."""
    return [node.variable for node in nodes_behind(tensor.grad_fn) if hasattr(node, "variable")]


def is_spent(result: torch.Tensor) -> bool:
    """Has a backward freed what some node behind a result had saved? Then there can be no other one."""
    return any(_is_freed(node) for node in nodes_behind(result.grad_fn))


def _is_freed(node: Any) -> bool:
    for name in names_of_saved(type(node)):  # type: ignore[arg-type]  # a node of autograd
        try:
            getattr(node, name)
        except RuntimeError as error:
            return FREED in str(error)
    return False


@functools.cache
def names_of_saved(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors")
