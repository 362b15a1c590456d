"""Print a lowered program. The output is read by people and by golden tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import torch

from stoker.loop.index import Dimensions
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.layout import Layout
from stoker.loop.node import Loops, Node, Program
from stoker.loop.view import Stored
from stoker.shape.expr import Expr, text


def short(dtype: torch.dtype) -> str:
    """torch.float32 as float32."""
    return str(dtype).removeprefix("torch.")


def sizes_text(sizes: Iterable[Expr]) -> str:
    return "[" + ", ".join(text(s) for s in sizes) + "]"


def layout_text(layout: Layout) -> str:
    return f"{short(layout.dtype)}{sizes_text(layout.sizes)} strides {sizes_text(layout.strides)}"


def instruction_text(number: int, i: LoopInstruction) -> str:
    """One line of a body."""
    arguments = ", ".join(f"v{a}" for a in i.arguments)
    match i:
        case Load():
            guard = f" if {arguments}" if arguments else ""
            return f"v{number} = {i.buffer}[{text(i.index)}]{guard}"
        case Store():
            return f"{i.buffer}[{text(i.index)}] {i.combine or ''}= {arguments}"
        case Number():
            return f"v{number} = {i.words}:{short(i.dtype)}"
        case Index():
            return f"v{number} = index({text(i.expr)}):{short(i.dtype)}"
        case Indirect():
            first, *condition = (f"v{a}" for a in i.arguments)
            guard = f" if {condition[0]}" if condition else ""
            return f"{text(i.name)} = {first} below {text(i.size)} as {i.family}{guard}"
        case Reduce():
            return f"v{number} = {i.kind} of {arguments} over the inner loops"
        case Scan():
            return f"v{number} = {i.kind} of {arguments} so far along the inner loops"
        case Convert():
            return f"v{number} = {short(i.dtype)}({arguments})"
        case Apply():
            return f"v{number} = {i.operation}({arguments})"
    assert_never(i)


def loops_text(outer: Dimensions, inner: Dimensions) -> str:
    words, reduced = (", ".join(f"{text(d.symbol)} < {text(d.size)}" for d in loops) for loops in (outer, inner))
    return f"for {words or 'once'}{f' reduce {reduced}' if inner else ''}"


def argument_text(value: object) -> str:
    """An argument of a library call."""
    if isinstance(value, Stored):
        offset = "" if value.offset.value == 0 else f" from {text(value.offset)}"
        return f"{value.buffer}{sizes_text(value.sizes)} strides {sizes_text(value.strides)}{offset}"
    if isinstance(value, Expr):
        return text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(argument_text(v) for v in value) + "]"
    return str(value)


def node_text(node: Node) -> str:
    if isinstance(node, Loops):
        lines = [f"{', '.join(node.writes)}: {loops_text(node.outer, node.inner)}    # {', '.join(node.origins)}"]
        return "\n".join(lines + [f"    {instruction_text(n, i)}" for n, i in enumerate(node.body)])
    arguments = [argument_text(a) for a in node.arguments]
    arguments += [f"{name}={argument_text(a)}" for name, a in node.keywords.items()]
    return f"{', '.join(str(w) for w in node.writes)} = {node.operator}({', '.join(arguments)})"


def program_text(program: Program) -> str:
    """The whole program: inputs, buffers, nodes, outputs."""
    lines = []
    for position, name in enumerate(program.inputs):
        lines.append(f"input {name}: {layout_text(program.layouts[name])}" if name else f"input {position}: a number")
    lines += [f"constant {name}: {layout_text(program.layouts[name])}" for name in program.constants]
    written = [w for node in program.nodes for w in node.writes if w is not None]
    lines += [f"buffer {name}: {layout_text(program.layouts[name])}" for name in dict.fromkeys(written)]
    lines += [node_text(node) for node in program.nodes]
    lines.append("return " + ", ".join(argument_text(o) for o in program.outputs))
    return "\n".join(lines)
