"""Instructions that replacement code never needs, for code that tests write by hand."""

from __future__ import annotations

from stoker.bytecode import BINARY_OPS, Code, Instruction, build
from stoker.bytecode.versions import HAS_TO_BOOL


def nop() -> Code:
    return [Instruction("NOP")]


def load_deref(name: str) -> Code:
    return [Instruction("LOAD_DEREF", name)]


def load_global(name: str) -> Code:
    return [Instruction("LOAD_GLOBAL", name)]


def binary(text: str) -> Code:
    return [Instruction("BINARY_OP", BINARY_OPS.index(text))]


def return_const(constant: object) -> Code:
    return [*build.load_const(constant), *build.return_value()]


def pop_jump_if(what: str, target: Instruction) -> Code:
    """Pop any object; go on at the target if it is TRUE, FALSE, NONE or NOT_NONE."""
    to_bool = [Instruction("TO_BOOL")] if HAS_TO_BOOL and what in ("TRUE", "FALSE") else []
    return [*to_bool, Instruction(f"POP_JUMP_IF_{what}", target)]
