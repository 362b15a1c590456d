"""A graph with numbers that only data tells is cut where they appear.

In:  a functional ATen graph, some of whose operators give sizes or numbers that no input tells (`nonzero`, `item`).
Out: `Piece`s in the order in which they run: graphs without such operators, which can be compiled, and between them the operators
     themselves, with what is asked of their results (`hosted`). A size that a piece needs is told by an input of that piece.

Requirements, held by tests/differential/test_unbacked.py: random operators, and operators without a result, keep their order; a value
is computed as early as its operands allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.fake import FakeTensor
from stoker.graph.walk import has_effect
from stoker.nest import leaves


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a graph. `reads` and `writes` are values of the whole graph by name."""

    graph: GraphModule
    hosted: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def cut(module: GraphModule) -> list[Piece] | None:
    """The pieces of a graph; None if it needs no cut."""
    nodes = [n for n in module.graph.nodes if n.op not in ("placeholder", "output")]
    hosted = _hosted(nodes)
    if not hosted:
        return None
    levels = _levels(nodes, hosted)
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    pieces = []
    for level in range(max(levels.values()) + 1):
        for is_hosted in (False, True):
            inside = [n for n in nodes if levels[n] == level and (n in hosted) is is_hosted]
            if inside:
                pieces.append(_piece(module, inside, inputs, is_hosted, output))
    return pieces


def run_pieces(
    module: GraphModule, pieces: Sequence[Piece], compiled: Sequence[Callable[..., Any]]
) -> Callable[..., tuple[Any, ...]]:
    """A function of the whole graph's inputs that runs its pieces."""
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    results = [(True, r.name) if isinstance(r, Node) else (False, r) for r in output.args[0]]
    last = {name: number for number, piece in enumerate(pieces) for name in (*piece.reads, *piece.writes)}
    kept = {name for is_node, name in results if is_node}
    dead = [[n for n, at in last.items() if at == number and n not in kept] for number in range(len(pieces))]

    def call(*inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(names, inputs))
        for piece, run, done in zip(pieces, compiled, dead):
            values.update(zip(piece.writes, run(*(values[name] for name in piece.reads))))
            for name in done:
                del values[name]
        return tuple(values[value] if is_node else value for is_node, value in results)

    return call


def _hosted(nodes: Sequence[Node]) -> set[Node]:
    """Operators whose results only data tells, the parts of such results, what is computed of their sizes, and conditions on them:
    these are checked before anything relies on them."""
    found: set[Node] = set()
    for node in nodes:
        value, operands = node.meta.get("val"), node.all_input_nodes
        untold = _untold(value)
        fresh = untold - frozenset().union(*(_untold(n.meta.get("val")) for n in operands))
        condition = isinstance(value, torch.SymBool) or node.target is torch.ops.aten._assert_scalar.default
        part = any(n in found and isinstance(n.meta.get("val"), (list, tuple)) for n in operands)
        made = [n for n in operands if n.op != "placeholder"]
        size = bool(untold) and isinstance(value, torch.SymInt) and found.issuperset(made)
        if fresh or condition or part or size:
            found.add(node)
    return found


def _untold(value: Any) -> frozenset[Any]:
    """The symbols in a value that have no hint."""
    numbers: list[Any] = []
    for leaf in leaves(value):
        if isinstance(leaf, FakeTensor):
            numbers += leaf.meta.sizes if leaf.meta.symbolic else ()
        else:
            numbers.append(leaf)
    found: set[Any] = set()
    for number in numbers:
        if isinstance(number, torch.SymInt) and not number.node.has_hint():
            found |= {s for s in number.node.free_symbols() if not number.node.env.knows(s)}
        elif isinstance(number, torch.SymFloat) and not number.node.has_hint():
            found |= {s for s in number.node.recipe.symbols if not number.node.env.knows(s)}
    return frozenset(found)


def _levels(nodes: Sequence[Node], hosted: set[Node]) -> dict[Node, int]:
    """In which round each node runs: compiled graphs of a round come before its hosted operators."""
    levels: dict[Node, int] = {}
    ordered = 0
    for node in nodes:
        later = [levels[n] + (n in hosted and node not in hosted) for n in node.all_input_nodes if n in levels]
        levels[node] = max(later, default=0)
        if has_effect(node) and node.target is not torch.ops.aten._assert_scalar.default:
            levels[node] = ordered = max(levels[node], ordered)
    return levels


def _piece(module: GraphModule, inside: list[Node], inputs: list[Node], hosted: bool, output: Node) -> Piece:
    members = set(inside)
    needed = {n for node in inside for n in node.all_input_nodes if n not in members and n.op != "get_attr"}
    telling = [n for n in inputs if n in needed or (not hosted and _tells_sizes(n.meta.get("val")))]
    reads = [*telling, *(n for n in module.graph.nodes if n in needed and n not in telling)]
    writes = [n for n in inside if n.op != "get_attr" and any(u not in members or u is output for u in n.users)]
    graph, copied = Graph(), {}
    for node in reads:
        copied[node] = graph.placeholder(node.name)
        copied[node].meta = dict(node.meta)
    constants = dict.fromkeys(n for node in inside for n in node.all_input_nodes if n.op == "get_attr")
    for node in (*(c for c in constants if c not in members), *inside):
        copied[node] = graph.node_copy(node, copied.__getitem__)
        copied[node].meta = dict(node.meta)
    graph.output([copied[n] for n in writes])
    piece = torch_private.LazyGraphModule(module, graph)
    piece.meta.update(module.meta)
    return Piece(piece, hosted, tuple(n.name for n in reads), tuple(n.name for n in writes))


def _tells_sizes(value: Any) -> bool:
    return isinstance(value, torch.SymInt) or (isinstance(value, FakeTensor) and value.meta.symbolic)
