"""Leaves of autograd that captured code makes in the middle of a graph.

Back ends that differentiate a graph compute gradients for its inputs. A leaf inside is harmless as long as nothing behind the
graph can reach it: each output that needs a gradient needs it for the sake of an input as well, and not for that of a leaf that
is an output itself. A history that a backward inside used up leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Node

from stoker.capture.machine import Machine
from stoker.errors import BeginAnew, Break, StepBreak
from stoker.fake.history import is_spent, leaves_behind, nodes_behind
from stoker.nest import leaves


def leaf_break(what: str) -> Break:
    return Break(
        "requires_grad_()",
        f"{what} becomes a leaf of autograd in the middle of a graph",
        "set requires_grad before the compiled function is called",
    )


def refuse_reachable_leaves(m: Machine, outputs: Iterable[Node]) -> None:
    """Break where the first leaf was made, if code behind the graph could ask for its gradient."""
    given = list(outputs)
    for node in given:
        if node in m.record.leaves or not _needs_grad(node) or _is_spent(node):
            continue
        if not _leads_to_input(m, node) or _leads_to_leaf(m, node, given):
            first = min(m.record.leaves, key=lambda leaf: m.record.leaves[leaf])
            reason = leaf_break(f"the tensor `{first.name}`")
            m.blame(reason)
            raise StepBreak(m.record.leaves[first], reason)


def refuse_watched(m: Machine, outputs: Iterable[Node]) -> None:
    """Begin anew where a hook was put on a tensor that code behind the graph could differentiate by: as if it is called there alone."""
    nodes = {value.fake.grad_fn: step for value, step in m.record.watched.items()}
    for node in outputs:
        for tensor in _tensors(node):
            met = nodes.keys() & nodes_behind(tensor.grad_fn) if tensor.requires_grad and not is_spent(tensor) else ()
            for found in met:
                m.sizes.history.hooks_called_later.add(nodes[found])
                raise BeginAnew


def _tensors(node: Node) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(node.meta.get("example_value")) if isinstance(leaf, torch.Tensor)]


def _needs_grad(node: Node) -> bool:
    return any(tensor.requires_grad for tensor in _tensors(node))


def _is_spent(node: Node) -> bool:
    return all(is_spent(tensor) for tensor in _tensors(node) if tensor.requires_grad)


def _leads_to_leaf(m: Machine, node: Node, given: list[Node]) -> bool:
    """Does a backward from here reach a leaf made inside that is given back, too?"""
    made = {id(tensor) for leaf in given if leaf in m.record.leaves for tensor in _tensors(leaf)}
    return any(id(leaf) in made for tensor in _tensors(node) for leaf in leaves_behind(tensor))


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
