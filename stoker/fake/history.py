"""The history that autograd keeps of a tensor: the nodes behind it, what they saved, where they end; and where it forbids to write."""

from __future__ import annotations

import functools
from typing import Any

import torch

from stoker import torch_private

FREED = "Trying to backward through the graph a second time"
"""In the message of torch's error for a history that an earlier backward used up."""

_REFUSED = ("is being used in an in-place operation", "modified inplace")
"""In the messages of autograd's errors about writing to a leaf, to a view of one, or to a view that was made in a way it cannot follow."""


def is_refused_write(error: Exception) -> bool:
    """Did autograd refuse to write to a tensor?"""
    return any(words in str(error) for words in _REFUSED)


def may_refuse_write(tensor: torch.Tensor) -> bool:
    """May autograd refuse to write something that requires a gradient to this tensor, where gradients are on?"""
    view = torch_private.is_view(tensor)
    if view and torch_private.creation_of(tensor) is not torch_private.Creation.DEFAULT:
        return True
    owner = tensor._base if view and tensor._base is not None else tensor
    return tensor.requires_grad and (torch_private.is_leaf_so_far(tensor) or torch_private.is_leaf_so_far(owner))


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
    """The attributes by which a node's saved tensors are read. (Saved numbers are never freed, and reading a symbolic one fixes it.)"""
    names = dir(kind)
    return tuple(n for n in names if n.startswith("_saved_") and f"_raw{n}" in names or n == "saved_tensors")
