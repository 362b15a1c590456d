"""In which order the halves of a joint graph run, and the most bytes that are alive at once.

In:  a `Joint` and the nodes kept between its halves.
Out: `forward_order`, `backward_order`: lists of nodes; `peak_bytes`: of running both, operator by operator.

The backward computes a value again just before its first reader, not at the start: between two kept values no more is
alive than what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.fx import Node

from stoker.autograd.joint import Joint
from stoker.fake import FakeTensor
from stoker.graph.raising import raises_by_data
from stoker.graph.walk import ancestors, descendants, has_effect, tensor_bytes


def forward_order(joint: Joint, kept: Sequence[Node]) -> list[Node]:
    """What the forward runs, as the program did."""
    early = [n for n in joint.graph.nodes if n.meta["phase"] == "forward"]
    roots = [*joint.results, *kept, *(n for n in early if has_effect(n) or raises_by_data(n))]
    needed = ancestors(roots)
    return [n for n in joint.graph.nodes if n in needed and n.op != "placeholder"]


def backward_order(joint: Joint, kept: Sequence[Node]) -> list[Node]:
    """What the backward runs: as the engine did, values that were not kept being computed when first read."""
    tangents = [t for t in joint.tangents if t is not None]
    wanted = [g for g in joint.gradients if g is not None]
    given = {*kept, *tangents}
    late, needed = descendants(tangents), ancestors(wanted, frozenset(given))
    order: list[Node] = []
    done = set(given)
    for node in [*(n for n in joint.graph.nodes if n in late and n in needed), *wanted]:
        _visit(node, done, order)
    return order


def _visit(root: Node, done: set[Node], order: list[Node]) -> None:
    """Append a node after all it reads, without recursion: chains are as long as models are deep."""
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done.add(node)
            order.append(node)
        else:
            stack.append((node, True))
            stack += [(n, False) for n in reversed(node.all_input_nodes) if n not in done]


def peak_bytes(joint: Joint, kept: Sequence[Node]) -> int:
    """The most that is alive at once, beside inputs and what operators use inside."""
    tangents = [t for t in joint.tangents if t is not None]
    gradients = [g for g in joint.gradients if g is not None]
    outside = {m for n in joint.inputs for m in _memories(n)}
    forward = _peak(forward_order(joint, kept), (), (*joint.results, *kept), outside)
    return max(forward, _peak(backward_order(joint, kept), (*kept, *tangents), gradients, outside))


def _peak(order: Sequence[Node], given: Iterable[Node], held: Iterable[Node], outside: set[Any]) -> int:
    """Alive: what was given, from its making on what is made; each until its memory is read for the last time."""
    last = {
        memory: step
        for step, node in enumerate(order)
        for n in (node, *node.all_input_nodes)
        for memory in _memories(n)
    }
    last |= dict.fromkeys((m for n in held for m in _memories(n)), len(order))
    alive: dict[Any, int] = {}
    for node in given:
        alive |= {m: b for m, b in _memories(node).items() if m not in outside}
    present = highest = sum(alive.values())
    for step, node in enumerate(order):
        for memory, size in _memories(node).items():
            if memory not in outside and memory not in alive:
                alive[memory] = size
                present += size
        highest = max(highest, present)
        for memory in {m for n in (node, *node.all_input_nodes) for m in _memories(n)}:
            if last[memory] == step:
                present -= alive.pop(memory, 0)
    return highest


def _memories(node: Node) -> dict[Any, int]:
    """The memory that a node's value lies in, with its bytes."""
    value = node.meta["val"]
    parts = value if isinstance(value, (list, tuple)) else [value]
    return {p.memory: tensor_bytes(p) for p in parts if isinstance(p, FakeTensor)}
