"""Cut a joint graph in two: what runs forward, what runs backward, and the values kept in between.

In:  a `Joint`, and a chooser: a function from a Joint to the nodes to keep (`keep_all`, or
     `stoker.autograd.keep.min_cut`).
Out: `Parts`: two graph modules. The forward one takes the inputs and gives results, kept tensors, kept sizes; the
     backward one takes kept tensors, kept sizes and gradients of results, and gives gradients of inputs.

What must hold (tests/unit/autograd/test_partition.py): the backward computes a value again only from what was kept,
and no random operator is run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.autograd.joint import Joint

Chooser = Callable[[Joint], Sequence[Node]]


@dataclass(frozen=True)
class Parts:
    """The two halves. `kept` are the tensors, and `sizes` counts the integers, that the forward keeps; `reached_by` names,
    for each gradient, its tangents."""

    forward: GraphModule
    backward: GraphModule
    kept: tuple[Node, ...]
    sizes: int
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    reached_by: tuple[frozenset[int], ...]


def ancestors(nodes: Iterable[Node], stop: frozenset[Node] = frozenset()) -> set[Node]:
    """The nodes and all they are computed from, not going past `stop`."""
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if node not in stop:
                stack += node.all_input_nodes
    return seen


def descendants(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and all that is computed from them."""
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.users
    return seen


def is_random(node: Node) -> bool:
    """Does it draw random numbers? Then it runs exactly once, also if nobody reads the result."""
    target = node.args[0] if node.args and isinstance(node.args[0], torch_private.OpOverload) else node.target
    return isinstance(target, torch_private.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def has_effect(node: Node) -> bool:
    """Must it run though nobody reads a result?"""
    if is_random(node):
        return True
    return isinstance(node.target, torch_private.OpOverload) and not node.target._schema.returns


def keep_all(joint: Joint) -> list[Node]:
    """Keep every value that the backward reads and that needs no gradient to compute: what eager keeps."""
    given = [t for t in joint.tangents if t is not None]
    late = descendants(given)
    needed = ancestors(g for g in joint.gradients if g is not None)
    read = {n for late_node in late & needed for n in late_node.all_input_nodes if n not in late}
    read |= {g for g in joint.gradients if g is not None and g not in late}
    return [n for n in joint.graph.nodes if n in read and n.op != "get_attr"]


def forward_only(joint: Joint) -> GraphModule:
    """The program without its backward."""
    return _extract(joint, joint.inputs, (), joint.results, effects=True, name="Forward")


def split(joint: Joint, choose: Chooser) -> Parts:
    """The joint graph as two."""
    kept = list(choose(joint))
    sizes = [n for n in kept if not isinstance(n.meta["val"], torch.Tensor)]
    tensors = [n for n in kept if isinstance(n.meta["val"], torch.Tensor)]
    tangents = [(p, t) for p, t in enumerate(joint.tangents) if t is not None]
    gradients = [(i, g) for i, g in enumerate(joint.gradients) if g is not None]
    forward = _extract(joint, joint.inputs, (), [*joint.results, *tensors, *sizes], effects=True, name="Forward")
    wanted = [g for _, g in gradients]
    backward = _extract(joint, [*tensors, *sizes], [t for _, t in tangents], wanted, effects=False, name="Backward")
    late = [(p, descendants([t])) for p, t in tangents]
    reached = tuple(frozenset(p for p, reach in late if g in reach) for g in wanted)
    return Parts(
        forward,
        backward,
        tuple(tensors),
        len(sizes),
        tuple(p for p, _ in tangents),
        tuple(i for i, _ in gradients),
        reached,
    )


def _extract(
    joint: Joint,
    given: Sequence[Node],
    tangents: Sequence[Node],
    wanted: Sequence[Node],
    *,
    effects: bool,
    name: str,
) -> GraphModule:
    """The part of the joint graph from `given` to `wanted`, as a graph of its own."""
    graph, copied = Graph(), {}
    for node in (*given, *tangents):
        copied[node] = graph.placeholder(node.name)
        copied[node].meta = dict(node.meta)
    roots = list(wanted)
    if effects:
        roots += [n for n in joint.graph.nodes if n.meta.get("phase") == "forward" and has_effect(n)]
    needed = ancestors(roots, frozenset(copied))
    for node in joint.graph.nodes:
        if node in needed and node not in copied:
            if node.op == "placeholder":
                raise ValueError(f"{name} needs the input {node.name}, which was not kept")
            copied[node] = graph.node_copy(node, copied.__getitem__)
            copied[node].meta = dict(node.meta)
    graph.output([copied[n] for n in wanted])
    return torch_private.LazyGraphModule(_constants(joint, needed), graph, name)


def _constants(joint: Joint, needed: set[Node]) -> dict[str, Any]:
    names = [str(n.target) for n in needed if n.op == "get_attr"]
    return {name: joint.constants[name] for name in names}
