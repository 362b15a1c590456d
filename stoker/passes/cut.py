"""A graph with numbers that only data tells is cut where they appear, and where operators take what no plan holds.

In:  a functional ATen graph, some of whose operators give sizes or numbers that no input tells (`nonzero`, `item`), or draw from a
     generator of the user's.
Out: `Piece`s in the order in which they run: graphs without such operators, which can be compiled, and between them the operators
     themselves, with what is asked of their results (`hosted`). A size that a piece needs is told by an input of that piece.

Requirements, held by tests/differential/test_unbacked.py: random operators, and operators without a result, keep their order; a value
is computed as early as its operands allow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.fake import FakeTensor
from stoker.fake.rules.check import CHECKS
from stoker.graph.dedupe import dedupe
from stoker.graph.insert import copied_input, copied_node
from stoker.graph.untold import symbols_in, tells, untold
from stoker.graph.walk import has_effect, is_view
from stoker.shape.expr import Symbol
from stoker.shape.symnode import expr_of


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a graph. `reads` and `writes` are values of the whole graph by name."""

    graph: GraphModule
    hosted: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def cut(module: GraphModule, apart: Callable[[Node], bool] = lambda node: False) -> list[Piece] | None:
    """The pieces of a graph; None if it needs no cut. What is said to be `apart` is hosted as well."""
    if any(map(tells, module.graph.nodes)):
        _merge(module.graph)
    nodes = [n for n in module.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    hosted = _hosted(nodes) | {n for n in nodes if apart(n)}
    if not hosted:
        return None
    levels = _levels(nodes, hosted)
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    tellers = _tellers(module.graph)
    groups = []
    for level in range(min(levels.values()), max(levels.values()) + 1):
        for is_hosted in (False, True):
            inside = [n for n in nodes if levels[n] == level and (n in hosted) is is_hosted]
            if inside:
                there = {n for n in nodes if levels[n] < level}
                told = {} if is_hosted else _first(tellers, there)
                groups.append((inside, _reads(module.graph, inside, told), is_hosted))
    wanted = {*output.all_input_nodes, *(n for _, reads, _ in groups for n in reads)}
    return [_piece(module, inside, reads, wanted, is_hosted) for inside, reads, is_hosted in groups]


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


def _merge(graph: Graph) -> None:
    """Find out once what is found out twice: pieces do not see each other. A result of the graph stays in memory of its own."""
    for node, first in reversed(dedupe(graph).items()):
        if not _is_given_back(node):
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _is_given_back(node: Node) -> bool:
    """Is a node, or a view or part of it, among the results?"""
    part = isinstance(node.meta.get("val"), (list, tuple))
    return any(user.op == "output" or (part or is_view(user)) and _is_given_back(user) for user in node.users)


def _hosted(nodes: Sequence[Node]) -> set[Node]:
    """Operators whose results only data tells, the parts of such results, what is computed of their sizes, and conditions on them:
    these are checked before anything relies on them. Operators that draw from a generator that is an input."""
    found: set[Node] = set()
    for node in nodes:
        value, operands = node.meta.get("val"), node.all_input_nodes
        condition = isinstance(value, torch.SymBool) or node.target in CHECKS
        part = any(n in found and isinstance(n.meta.get("val"), (list, tuple)) for n in operands)
        made = [n for n in operands if n.op != "placeholder"]
        size = isinstance(value, torch.SymInt) and bool(untold(value)) and found.issuperset(made)
        by_truth = any(isinstance(n.meta.get("val"), torch.SymBool) for n in operands)
        draws = any(isinstance(n.meta.get("val"), torch.Generator) for n in operands)
        if tells(node) or condition or part or size or by_truth or draws:
            found.add(node)
    return found


def _levels(nodes: Sequence[Node], hosted: set[Node]) -> dict[Node, int]:
    """In which round each node runs: compiled graphs of a round come before its hosted operators. What is hosted, and needs nothing
    that is compiled, comes first."""
    levels: dict[Node, int] = {}
    ordered, last_is_hosted = -1, False
    for node in nodes:
        later = [levels[n] + (n in hosted and node not in hosted) for n in node.all_input_nodes if n in levels]
        levels[node] = max(-1 if node in hosted else 0, *later, -1)
        if has_effect(node) and node.target not in CHECKS:
            soonest = ordered + (last_is_hosted and node not in hosted)
            levels[node] = ordered = max(levels[node], soonest)
            last_is_hosted = node in hosted
    return levels


def _tellers(graph: Graph) -> dict[Any, list[Node]]:
    """For each symbol the values that tell it: an integer that it is, or a tensor that has it for a size or a stride."""
    found: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        for symbol in _told(node.meta.get("val")) if node.op != "output" else ():
            found.setdefault(symbol, []).append(node)
    return found


def _first(tellers: Mapping[Any, Sequence[Node]], there: Collection[Node]) -> dict[Any, Node]:
    """For each symbol the first of its tellers among those that are there, or are inputs."""
    known = {symbol: (n for n in nodes if n.op == "placeholder" or n in there) for symbol, nodes in tellers.items()}
    return {symbol: node for symbol, nodes in known.items() if (node := next(nodes, None)) is not None}


def _told(value: Any) -> list[Any]:
    numbers: tuple[Any, ...] = (value,) if isinstance(value, torch.SymInt) else ()
    if isinstance(value, FakeTensor) and value.meta.symbolic:
        numbers = (*value.meta.sizes, *value.meta.strides)
    return [expr_of(n) for n in numbers if isinstance(n, torch.SymInt) and isinstance(expr_of(n), Symbol)]


def _reads(graph: Graph, inside: list[Node], tellers: Mapping[Any, Node]) -> list[Node]:
    """What a group of nodes needs from outside: operands, and values that tell the symbols of its sizes."""
    members = set(inside)
    needed = {n for node in inside for n in node.all_input_nodes if n not in members and n.op != "get_attr"}
    symbols = frozenset().union(*(symbols_in(n.meta.get("val")) for n in (*inside, *needed))) if tellers else ()
    told = {symbol for node in needed for symbol in _told(node.meta.get("val"))}
    needed |= {tellers[s] for s in symbols if s not in told and s in tellers and tellers[s] not in members}
    return [n for n in graph.nodes if n in needed]


def _piece(module: GraphModule, inside: list[Node], reads: list[Node], wanted: set[Node], hosted: bool) -> Piece:
    writes = [n for n in inside if n in wanted]
    graph, copied = Graph(), dict[Node, Node]()
    for node in reads:
        copied_input(graph, node, copied)
    constants = dict.fromkeys(n for node in inside for n in node.all_input_nodes if n.op == "get_attr")
    for node in (*constants, *inside):
        copied_node(graph, node, copied)
    graph.output([copied[n] for n in writes])
    piece = torch_private.LazyGraphModule(module, graph)
    piece.meta.update(module.meta)
    return Piece(piece, hosted, tuple(n.name for n in reads), tuple(n.name for n in writes))
