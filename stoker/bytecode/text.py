"""Instructions as text, for people and for golden tests.

One instruction a line: its label if anything leads there, its name, its operand, its flag, its handler. Line numbers
open a group, as in `dis`. Nothing in the text depends on offsets, so it changes only when the program does.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from .decode import decode
from .instruction import Instruction
from .versions import BINARY_OPS


def render(code: Sequence[Instruction] | CodeType) -> str:
    """A listing with labels L1, L2, ... in the order of the instructions."""
    instructions = decode(code) if isinstance(code, CodeType) else code
    labels = _labels(instructions)
    width = max((len(label) for label in labels.values()), default=0) + 1 if labels else 0
    lines = []
    line_number = None
    for instruction in instructions:
        spot = instruction.positions.lineno if instruction.positions else None
        shown = str(spot) if spot is not None and spot != line_number else ""
        line_number = spot if spot is not None else line_number
        label = f"{labels[instruction]}:" if instruction in labels else ""
        lines.append(f"{shown:>4}  {label:<{width}} {_line(instruction, labels)}".rstrip())
    return "\n".join(lines)


def _labels(instructions: Sequence[Instruction]) -> dict[Instruction, str]:
    targets = {instruction.value for instruction in instructions if isinstance(instruction.value, Instruction)}
    targets |= {instruction.handler.target for instruction in instructions if instruction.handler}
    led_to = [instruction for instruction in instructions if instruction in targets]
    return {instruction: f"L{number}" for number, instruction in enumerate(led_to, 1)}


def _line(instruction: Instruction, labels: dict[Instruction, str]) -> str:
    words = [f"{instruction.name:<22}", _operand(instruction, labels)]
    if instruction.flag:
        words.append(f"+{instruction.flag}")
    handler = instruction.handler
    if handler is not None:
        lasti = " lasti" if handler.lasti else ""
        words.append(f"  ! {labels.get(handler.target, '?')} at {handler.depth}{lasti}")
    return " ".join(word for word in words if word).rstrip()


def _operand(instruction: Instruction, labels: dict[Instruction, str]) -> str:
    match instruction.name, instruction.value:
        case _, Instruction() as target:
            return f"-> {labels.get(target, '?')}"
        case "BINARY_OP", int(number):
            return BINARY_OPS[number]
        case "LOAD_CONST" | "KW_NAMES", CodeType() as code:
            return f"<code {code.co_qualname}>"
        case "LOAD_CONST" | "KW_NAMES", constant:
            return repr(constant)
        case _, None:
            return ""
    return str(instruction.value)
