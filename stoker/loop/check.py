"""Is a lowered program well formed? Run between stages in tests, and always under STOKER_STRICT=1.

Requirements checked: each buffer read was written before, or is an input; values are made before they are used; types agree as
`stoker.loop.op` says; an index uses known symbols only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stoker.loop.body import Instruction
from stoker.loop.node import Extern, Loops, Program, reads
from stoker.loop.op import COMBINES, ELEMENTWISE, MOMENTS, OUTSIDE, REDUCTIONS, SCANS
from stoker.loop.text import node_text
from stoker.shape.expr import Expr, Symbol, free_symbols


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
        if instruction.op == "indirect":
            symbols.add(instruction.data[0])


def _problem(body: Sequence[Instruction], number: int, instruction: Instruction, symbols: set[Symbol]) -> str:
    if any(a >= number for a in instruction.arguments):
        return "it uses a value that comes later"
    types = [body[a].dtype for a in instruction.arguments]
    for expr in _indices(instruction):
        unknown = free_symbols(expr) - symbols
        if unknown:
            return f"its index uses unknown symbols {unknown}"
    operation = ELEMENTWISE.get(instruction.op)
    if operation is None:
        return _structural_problem(instruction, types)
    if len(types) != operation.arity:
        return f"{instruction.op} takes {operation.arity} arguments"
    if instruction.op == "where":
        return "" if types[0] is torch.bool and types[1] is types[2] else f"where of types {types}"
    return "" if len(set(types)) == 1 else f"{instruction.op} of different types {types}"


def _structural_problem(instruction: Instruction, types: list[torch.dtype]) -> str:
    match instruction.op:
        case "reduce" if instruction.data not in REDUCTIONS:
            return f"there is no reduction {instruction.data}"
        case "reduce" if instruction.data in MOMENTS and not types[0].is_floating_point:
            return f"{instruction.data} of {types[0]}"
        case "reduce" if instruction.data == "xor_sum" and types[0].is_floating_point:
            return f"{instruction.data} of {types[0]}"
        case "indirect":
            return "" if instruction.data[2] in OUTSIDE else f"there is no family {instruction.data[2]}"
        case "scan":
            return "" if instruction.data in SCANS else f"there is no scan {instruction.data}"
        case "store":
            return "" if instruction.data[2] in COMBINES else f"there is no store that does {instruction.data[2]}"
    return ""


def _indices(instruction: Instruction) -> list[Expr]:
    match instruction.op:
        case "load" | "store" | "indirect":
            return [instruction.data[1]]
        case "index":
            return [instruction.data]
    return []
