"""Cut a joint graph in two: what runs forward, what runs backward, and the values kept in between.

In:  a `Joint`, and a chooser: a function from a Joint to the nodes to keep (`keep_all`, or
     `stoker.autograd.keep.min_cut`).
Out: `Parts`: two graph modules. The forward one takes the inputs and gives results, kept tensors, kept sizes; the
     backward one takes kept tensors, kept sizes and gradients of results, and gives gradients of inputs.

What must hold (tests/unit/autograd/test_partition.py): the backward computes a value again only from what was kept,
and no random operator is run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.autograd.joint import Joint
from stoker.autograd.order import backward_order, forward_order
from stoker.fake import FakeTensor
from stoker.graph.insert import call, copied_input, copy_call
from stoker.graph.untold import symbols_in
from stoker.graph.walk import ancestors, descendants
from stoker.shape.expr import Symbol
from stoker.shape.symnode import size_of

Chooser = Callable[[Joint], Sequence[Node]]
COPIED = "copied"
"""The mark, in the meta of a node that a chooser keeps, of one that others may write to before the backward: the forward keeps a copy."""


@dataclass(frozen=True)
class Parts:
    """The two halves. `kept` are the tensors, and `sizes` the integers, that the forward keeps; those of `copied` it keeps as copies;
    `reached_by` names, for each gradient, its tangents."""

    forward: GraphModule
    backward: GraphModule
    kept: tuple[Node, ...]
    copied: frozenset[Node]
    sizes: tuple[Node, ...]
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    reached_by: tuple[frozenset[int], ...]

    @property
    def all_kept(self) -> tuple[Node, ...]:
        return (*self.kept, *self.sizes)


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
    return _extract(joint, joint.inputs, forward_order(joint, ()), joint.results, "Forward")


def split(joint: Joint, choose: Chooser) -> Parts:
    """The joint graph as two."""
    kept = _with_sizes(joint, list(choose(joint)))
    sizes = [n for n in kept if not _is_tensor(n)]
    tensors = [n for n in kept if _is_tensor(n)]
    tangents = [(p, t) for p, t in enumerate(joint.tangents) if t is not None]
    gradients = [(i, g) for i, g in enumerate(joint.gradients) if g is not None]
    wanted = [g for _, g in gradients]
    results = [*joint.results, *tensors, *sizes]
    late = [(p, descendants([t])) for p, t in tangents]
    copied = frozenset(n for n in tensors if n.meta.get(COPIED))
    return Parts(
        forward=_extract(joint, joint.inputs, forward_order(joint, kept), results, "Forward", copied),
        backward=backward_of(joint, [*tensors, *sizes]),
        kept=tuple(tensors),
        copied=copied,
        sizes=tuple(sizes),
        tangents=tuple(p for p, _ in tangents),
        gradients=tuple(i for i, _ in gradients),
        reached_by=tuple(frozenset(p for p, reach in late if g in reach) for g in wanted),
    )


def _with_sizes(joint: Joint, kept: list[Node]) -> list[Node]:
    """What is kept, and integers of the forward that tell sizes of the backward which neither that nor a gradient tells: of `h.split(c)`
    it may know the smaller of c and a size of h, and need c."""
    given = [*kept, *(t for t in joint.tangents if t is not None)]
    needed = {s for n in (*given, *backward_order(joint, kept)) for s in symbols_in(n.meta["val"])}
    missing = needed - {s for n in given for s in _told(n.meta["val"])}
    early = [n for n in joint.graph.nodes if n.meta["phase"] == "forward" and isinstance(n.meta["val"], torch.SymInt)]
    found = {s: n for n in reversed(early) for s in _told(n.meta["val"])}
    tellers = [found.get(s) or _size_of_an_input(joint, s) for s in sorted(missing, key=str)]
    return [*kept, *dict.fromkeys(n for n in tellers if n is not None)]


def _size_of_an_input(joint: Joint, symbol: Symbol) -> Node | None:
    """A new node for a size that an input has; None if none has it."""
    for node in filter(_is_tensor, joint.inputs):
        for dim, size in enumerate(node.meta["val"].shape):
            if symbol in _told(size):
                with joint.graph.inserting_after(joint.inputs[-1]):
                    made = joint.graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                made.meta = {**node.meta, "val": size}
                return made
    return None


def _told(value: object) -> Iterator[Symbol]:
    """The symbols that a value tells: those that it is, or has for a size or a stride."""
    numbers = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
    for number in numbers:
        if isinstance(number, torch.SymInt) and isinstance(expr := size_of(number), Symbol):
            yield expr


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor)


def backward_of(joint: Joint, kept: Sequence[Node], wanted: Sequence[Node | None] | None = None) -> GraphModule:
    """The part of a joint graph from what was kept, and gradients of results, to gradients of inputs: those there are, or
    `wanted`, with None for one that there is not."""
    given = [*kept, *(t for t in joint.tangents if t is not None)]
    if wanted is None:
        wanted = [g for g in joint.gradients if g is not None]
    return _extract(joint, given, backward_order(joint, kept), wanted, "Backward")


def _extract(
    joint: Joint,
    given: Sequence[Node],
    order: Sequence[Node],
    wanted: Sequence[Node | None],
    name: str,
    apart: frozenset[Node] = frozenset(),
) -> GraphModule:
    """A part of the joint graph, from `given` to `wanted`, as a graph of its own; of those `apart` it gives copies."""
    graph, copied = Graph(), dict[Node, Node]()
    for node in given:
        copied_input(graph, node, copied)
    for node in order:
        if node.op == "placeholder":
            raise ValueError(f"{name} needs the input {node.name}, which was not kept")
        copy = copy_call if node.op == "call_function" else Graph.node_copy
        copied[node] = copy(graph, node, copied.__getitem__)
        copied[node].meta = dict(node.meta)
    ends = {n: _copy(graph, copied[n]) if n in apart else copied[n] for n in wanted if n is not None}
    graph.output([None if n is None else ends[n] for n in wanted])
    constants = {str(n.target): joint.constants[str(n.target)] for n in order if n.op == "get_attr"}
    torch_private.spell_out(graph)
    return torch_private.LazyGraphModule(constants, graph, name)


def _copy(graph: Graph, node: Node) -> Node:
    """A new node, behind all others, that holds a copy."""
    made = call(graph, torch.ops.aten.clone.default, (node,))
    made.meta = {**node.meta, "val": copy_of(node.meta["val"])}
    return made


def copy_of(value: Any) -> FakeTensor:
    """What is known of a copy of a tensor."""
    return value.memory.mode.propagate(torch.ops.aten.clone.default, (value,), {})  # type: ignore[no-any-return]  # of a clone
