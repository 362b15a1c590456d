"""Is a lowered program well formed? Run between stages in tests, and always under STOKER_STRICT=1.

Requirements checked: each buffer read was written before, or is an input; values are made before they are used; types agree as
`stoker.loop.op` says; an index uses known symbols only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import torch

from stoker.errors import OUTSIDE
from stoker.loop.instruction import (
    Apply,
    Convert,
    Index,
    Indirect,
    Load,
    LoopInstruction,
    Number,
    Reduce,
    Scan,
    Store,
    index_expressions,
)
from stoker.loop.node import Extern, Loops, Program, reads
from stoker.loop.op import COMBINES, ELEMENTWISE, MOMENTS, REDUCTIONS, SCANS
from stoker.loop.text import node_text
from stoker.shape.expr import Symbol
from stoker.shape.walk import free_symbols


class Malformed(AssertionError):
    """A stage broke the rules of the loop IR: a defect of Stoker's."""


def check(program: Program) -> None:
    """Raise Malformed with the node that is wrong."""
    known = {name for name in program.inputs if name} | set(program.constants) | program.blank
    for node in program.nodes:
        missing = [name for name in reads(node) if name not in known]
        if missing:
            raise Malformed(f"{missing} are read before they are written:\n{node_text(node)}")
        known |= {name for name in node.writes if name is not None}
        if isinstance(node, Loops):
            check_body(node, set(program.symbols))
        elif not isinstance(node, Extern):
            raise Malformed(f"not a node: {node!r}")


def check_body(node: Loops, sizes: set[Symbol]) -> None:
    """Check the instructions of one loop nest."""
    symbols = sizes | {d.symbol for d in (*node.outer, *node.inner)}
    for number, instruction in enumerate(node.body):
        problem = _problem(node.body, number, instruction, symbols)
        if problem:
            raise Malformed(f"v{number}: {problem}:\n{node_text(node)}")
        if isinstance(instruction, Indirect):
            symbols.add(instruction.name)


def _problem(body: Sequence[LoopInstruction], number: int, i: LoopInstruction, symbols: set[Symbol]) -> str:
    if any(a >= number for a in i.arguments):
        return "it uses a value that comes later"
    for expr in index_expressions(i):
        unknown = free_symbols(expr) - symbols
        if unknown:
            return f"its index uses unknown symbols {unknown}"
    return _problem_of_kind(i, [body[a].dtype for a in i.arguments])


def _problem_of_kind(i: LoopInstruction, types: list[torch.dtype]) -> str:
    match i:
        case Apply():
            return _elementwise_problem(i.operation, types)
        case Reduce():
            if i.kind not in REDUCTIONS:
                return f"there is no reduction {i.kind}"
            floating = types[0].is_floating_point
            wrong = (i.kind in MOMENTS and not floating) or (i.kind == "xor_sum" and floating)
            return f"{i.kind} of {types[0]}" if wrong else ""
        case Indirect():
            return "" if i.family in OUTSIDE else f"there is no family {i.family}"
        case Scan():
            return "" if i.kind in SCANS else f"there is no scan {i.kind}"
        case Store():
            return "" if i.combine in COMBINES else f"there is no store that does {i.combine}"
        case Load() | Number() | Index() | Convert():
            return ""
    assert_never(i)


def _elementwise_problem(name: str, types: list[torch.dtype]) -> str:
    operation = ELEMENTWISE.get(name)
    if operation is None:
        return f"there is no operation {name}"
    if len(types) != operation.arity:
        return f"{name} takes {operation.arity} arguments"
    if name == "where":
        return "" if types[0] is torch.bool and types[1] is types[2] else f"where of types {types}"
    return "" if len(set(types)) == 1 else f"{name} of different types {types}"
