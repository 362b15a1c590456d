"""Print a lowered program. The output is read by people and by golden tests."""

from __future__ import annotations

from typing import Any

from stoker.loop.body import Instruction
from stoker.loop.index import Dimensions
from stoker.loop.layout import Layout
from stoker.loop.node import Loops, Node, Program
from stoker.loop.view import Stored
from stoker.shape.expr import Expr, text


def short(dtype: Any) -> str:
    """torch.float32 as float32."""
    return str(dtype).removeprefix("torch.")


def sizes_text(sizes: Any) -> str:
    return "[" + ", ".join(text(s) for s in sizes) + "]"


def layout_text(layout: Layout) -> str:
    return f"{short(layout.dtype)}{sizes_text(layout.sizes)} strides {sizes_text(layout.strides)}"


def instruction_text(number: int, instruction: Instruction) -> str:
    """One line of a body."""
    arguments = ", ".join(f"v{a}" for a in instruction.arguments)
    match instruction.op:
        case "load":
            buffer, index = instruction.data
            guard = f" if {arguments}" if arguments else ""
            return f"v{number} = {buffer}[{text(index)}]{guard}"
        case "store":
            buffer, index, combine = instruction.data
            return f"{buffer}[{text(index)}] {combine or ''}= {arguments}"
        case "constant":
            return f"v{number} = {instruction.data!r}:{short(instruction.dtype)}"
        case "index":
            return f"v{number} = index({text(instruction.data)}):{short(instruction.dtype)}"
        case "indirect":
            name, size, kind = instruction.data
            first, *condition = (f"v{a}" for a in instruction.arguments)
            guard = f" if {condition[0]}" if condition else ""
            return f"{text(name)} = {first} below {text(size)} as {kind}{guard}"
        case "reduce":
            return f"v{number} = {instruction.data} of {arguments} over the inner loops"
        case "scan":
            return f"v{number} = {instruction.data} of {arguments} so far along the inner loops"
        case "to_dtype":
            return f"v{number} = {short(instruction.dtype)}({arguments})"
    return f"v{number} = {instruction.op}({arguments})"


def loops_text(outer: Dimensions, inner: Dimensions) -> str:
    words = ", ".join(f"{text(d.symbol)} < {text(d.size)}" for d in outer)
    return f"for {words or 'once'}" + (
        " reduce " + ", ".join(f"{text(d.symbol)} < {text(d.size)}" for d in inner) if inner else ""
    )


def argument_text(value: Any) -> str:
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
