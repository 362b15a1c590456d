"""Leaves of autograd that captured code makes in the middle of a graph.

Back ends that differentiate a graph compute gradients for its inputs. A leaf inside is harmless as long as nothing behind the
graph can reach it: it is no output, and each output that needs a gradient needs it for the sake of an input as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from stoker.errors import Break, StepBreak
from stoker.nest import leaves

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


def leaf_break(what: str) -> Break:
    return Break(
        "requires_grad_()",
        f"{what} becomes a leaf of autograd in the middle of a graph",
        "set requires_grad before the compiled function is called",
    )


def refuse_reachable_leaves(m: Machine, outputs: Iterable[Node]) -> None:
    """Break where the first leaf was made, if code behind the graph could ask for its gradient."""
    for node in outputs:
        if node in m.record.leaves or (_needs_grad(node) and not _leads_to_input(m, node)):
            first = min(m.record.leaves, key=lambda leaf: m.record.leaves[leaf])
            reason = leaf_break(f"the tensor `{first.name}`")
            m.blame(reason)
            raise StepBreak(m.record.leaves[first], reason)


def _needs_grad(node: Node) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves(node.meta.get("example_value")))


def _leads_to_input(m: Machine, node: Node) -> bool:
    """Is there a way back to an input, through tensors that need gradients, that does not end at a leaf made inside?"""
    seen, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        if current.op == "placeholder":
            return True
        for before in current.all_input_nodes:
            if before not in seen and before not in m.record.leaves and _needs_grad(before):
                seen.add(before)
                waiting.append(before)
    return False
