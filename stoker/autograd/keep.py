"""Which values to keep for the backward: the cheapest set from which it can compute all others again.

In:  a Joint, and a memory budget from 0 (keep as little as possible) to 1 (compute nothing expensive twice).
Out: the nodes to keep.

Values are vertices; keeping one costs its bytes; the backward's reads are the sink. Inputs are at the source, and so
is every operator that must not run again: random ones and those that decide a size always, expensive ones while the budget
allows. The cheapest cut is the answer. A cost is a preference, except `UNLIMITED`, which no solution crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.autograd.joint import Joint
from stoker.autograd.mincut import UNLIMITED, Network, minimum_cut
from stoker.autograd.order import peak_bytes
from stoker.autograd.partition import COPIED, copy_of
from stoker.autograd.segment import relaxed
from stoker.fake.meta import same
from stoker.graph.untold import tells
from stoker.graph.walk import ancestors, descendants, is_view, runs_once, size_bytes, viewed

_RISKY = 1 << 48
"""The cost of keeping what somebody may overwrite before the backward reads it, and eager would not have kept."""

_UNWANTED = 1 << 40
"""The added cost of keeping what the user asked to compute again (activation checkpointing)."""

_COPY = 4
"""What keeping a copy of an input costs, for each byte: it is read, written and held, while results that eager keeps are there anyway, and raise
where somebody writes to them."""

_CHEAP_NAMES = """
clone copy _to_copy full full_like zeros zeros_like ones ones_like empty empty_like new_zeros new_ones new_full
new_empty new_empty_strided empty_strided arange scalar_tensor where masked_fill constant_pad_nd cat stack
select_scatter slice_scatter diagonal_scatter as_strided_scatter tril triu fill flip sym_size sym_stride sym_numel
sym_storage_offset hardswish
"""
_CHEAP = frozenset(_CHEAP_NAMES.split())
"""Operators worth running twice beside those tagged pointwise and views: they only move or make elements, or work element by element though
torch does not say so."""


def min_cut(memory_budget: float = 1.0) -> Callable[[Joint], Sequence[Node]]:
    """A chooser with this budget.

    1 runs nothing expensive again. 0 takes the least memory found among cuts that run more and more of it again; a
    budget between takes the first of these cuts whose memory is at most that share of the way up from the least.
    Memory is the peak of the step and what is held between its halves, added: other graphs run while that is held.
    """
    if not 0 <= memory_budget <= 1:
        raise ValueError(f"memory_budget is a share between 0 and 1, not {memory_budget}")

    def choose(joint: Joint) -> Sequence[Node]:
        problem = _Problem(joint, recompute=memory_budget < 1.0)
        expensive = [n for n in problem.candidates if not n.meta.get("recompute") and not is_cheap(n)]
        kept = problem.solve(frozenset(expensive))
        for node in kept:
            node.meta[COPIED] = problem.is_unsaved(node)
        if memory_budget == 1.0 or not expensive:
            return kept
        rungs = _ladder(joint, [kept, *(problem.solve(once) for once in relaxed(problem.candidates, expensive))])
        allowed = rungs[-1].memory + memory_budget * (rungs[0].memory - rungs[-1].memory)
        return next(r.kept for r in rungs if r.memory <= allowed)

    return choose


@dataclass(frozen=True, slots=True)
class _Rung:
    """A cut, and what it takes."""

    kept: Sequence[Node]
    peak: int
    held: int

    @property
    def memory(self) -> int:
        return self.peak + self.held


def _ladder(joint: Joint, cuts: Sequence[Sequence[Node]]) -> list[_Rung]:
    """Of cuts that run more and more again, those of which each has a lower peak, or holds less, and neither is
    worse."""
    rungs: list[_Rung] = []
    for kept in cuts:
        held = sum(size_bytes(n) for n in kept if n.op != "placeholder")
        rung = _Rung(kept, peak_bytes(joint, kept), held)
        if not rungs or rung.peak <= rungs[-1].peak and rung.held <= rungs[-1].held and rung != rungs[-1]:
            rungs.append(rung)
    return rungs


class _Problem:
    """The part of the joint graph that the backward needs and that no gradient reaches."""

    def __init__(self, joint: Joint, recompute: bool) -> None:
        late = descendants(t for t in joint.tangents if t is not None)
        gradients = [g for g in joint.gradients if g is not None]
        needed = ancestors(gradients)
        self.candidates = [n for n in joint.graph.nodes if n in needed and n not in late]
        self.read = {n for node in late & needed for n in node.all_input_nodes if n not in late}
        self.read |= {g for g in gradients if g not in late}
        written = {joint.inputs[w.index] for w in joint.writes}
        returned = {r for r in joint.results if r not in self.read}
        self.risky = written | returned
        operands = (n for node in joint.graph.nodes if tells(node) for n in node.all_input_nodes)
        self.deciding = {n for n in operands if isinstance(n.meta["val"], torch.Tensor)}
        """What a size was found in: computed again it might differ in the last bit, and with it the size."""
        unsaved = (n for i, n in enumerate(joint.inputs) if i not in joint.saved and not self._is_read(n))
        self.given = _given(self.candidates)
        self.unsaved = frozenset(() if recompute else unsaved)
        """Inputs that the user may write to before the backward, as eager keeps nothing of them: of these, and of views of them, copies
        are kept. Who asks for less memory lets the backward start from all inputs, as checkpointing does."""

    def is_unsaved(self, node: Node) -> bool:
        """Does it lie in the memory of an input of which eager keeps nothing?"""
        while self.unsaved and node not in self.unsaved and (base := viewed(node)) is not None:
            node = base
        return node in self.unsaved

    def _is_read(self, node: Node) -> bool:
        """Is an input, or a view of it, read as it is?"""
        return node in self.read or any(is_view(user) and self._is_read(user) for user in node.users)

    def solve(self, once: frozenset[Node]) -> list[Node]:
        """The nodes to keep when those of `once`, those that draw or keep state, what decides a size and what checkpoints are given must
        not run again."""
        network = Network()
        source, sink = network.vertex(), network.vertex()
        entry = {n: network.vertex() for n in self.candidates}
        leave = {n: network.vertex() for n in self.candidates}
        for node in self.candidates:
            network.edge(entry[node], leave[node], self._cost(node))
            again = not (node in once or node in self.given or runs_once(node) or node in self.deciding)
            if node.op == "placeholder" or not again:
                network.edge(source, entry[node], UNLIMITED)
            if node in self.read:
                network.edge(leave[node], sink, UNLIMITED)
            for operand in node.all_input_nodes:
                network.edge(leave[operand], entry[node], UNLIMITED)
        _, reached = minimum_cut(network, source, sink)
        return [n for n in self.candidates if reached[entry[n]] and not reached[leave[n]]]

    def _cost(self, node: Node) -> int:
        value = node.meta["val"]
        if isinstance(value, (list, tuple)) or node.op == "get_attr":
            return UNLIMITED
        if not isinstance(value, torch.Tensor):
            return 1
        if self.is_unsaved(node):
            return 2 + _COPY * size_bytes(node) if same(copy_of(value).meta.strides, value.meta.strides) else UNLIMITED  # type: ignore[attr-defined]  # a fake tensor
        cost = 1 if node.op == "placeholder" else 2 + size_bytes(node)
        if is_view(node):
            cost += 2 * size_bytes(node)
        if node.meta.get("recompute") and node not in self.given:
            cost += _UNWANTED
        return cost + (_RISKY if node in self.risky else 0)


def _given(nodes: Sequence[Node]) -> set[Node]:
    """What checkpoints are given that took another checkpoint to compute. Eager keeps what it gives them, and computes each again from
    there: otherwise the last one would begin with all that came before, and hold what each of these makes for its own backward."""
    found: set[Node] = set()
    behind: set[Node] = set()
    for node in nodes:
        region = node.meta.get("ac_graph_id")
        if region is not None or any(operand in behind for operand in node.all_input_nodes):
            behind.add(node)
        if region is not None:
            outside = (n for n in node.all_input_nodes if n in behind and n.meta.get("ac_graph_id") != region)
            found.update(map(_base, outside))
    return found


def _base(node: Node) -> Node:
    """What it is a view of, of a view: that is one piece of memory."""
    while (base := viewed(node)) is not None:
        node = base
    return node


def is_cheap(node: Node) -> bool:
    if node.op != "call_function":
        return True
    if not isinstance(node.target, torch_private.OpOverload):
        return node.meta["val"] is not None and not isinstance(node.meta["val"], (list, tuple))
    if torch.Tag.pointwise in node.target.tags or is_view(node):
        return True
    return torch_private.schema_of(node.target).name.removeprefix("aten::") in _CHEAP
