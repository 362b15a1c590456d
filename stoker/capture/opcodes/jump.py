"""Jumps and loops."""

from __future__ import annotations

from stoker.bytecode import Instruction
from stoker.bytecode.versions import LOOP_END
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.raising import truth_where_not_raised
from stoker.capture.values.constant import Constant
from stoker.capture.values.rounds import iterate
from stoker.capture.values.value import Exhausted, Lazy, Value
from stoker.capture.while_loops import stop_before_next_round
from stoker.errors import Break


def JUMP(m: Machine, f: Frame, i: Instruction) -> None:
    f.jump(i.value)


JUMP_FORWARD = JUMP_BACKWARD = JUMP_BACKWARD_NO_INTERRUPT = JUMP


def _truth(m: Machine, f: Frame, i: Instruction, jumps_if: bool) -> bool:
    """The truth of what is on the stack; where only data tells it and one side only raises, that of the other."""
    value = f.stack[-1]
    stop_before_next_round(m, f, i, value)
    try:
        return value.truth(m)
    except Break:
        known = m.wrap.force(value) if isinstance(value, Lazy) else value
        expected = truth_where_not_raised(m, f, i, known, jumps_if)
        if expected is None:
            raise
        return expected


def POP_JUMP_IF_TRUE(m: Machine, f: Frame, i: Instruction) -> None:
    if _truth(m, f, i, True):
        f.jump(i.value)
    f.pop()


def POP_JUMP_IF_FALSE(m: Machine, f: Frame, i: Instruction) -> None:
    if not _truth(m, f, i, False):
        f.jump(i.value)
    f.pop()


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.python_type() is type(None)


def POP_JUMP_IF_NONE(m: Machine, f: Frame, i: Instruction) -> None:
    if _is_none(f.pop()):
        f.jump(i.value)


def POP_JUMP_IF_NOT_NONE(m: Machine, f: Frame, i: Instruction) -> None:
    if not _is_none(f.pop()):
        f.jump(i.value)


def JUMP_IF_TRUE_OR_POP(m: Machine, f: Frame, i: Instruction) -> None:
    if f.stack[-1].truth(m):
        f.jump(i.value)
    else:
        f.pop()


def JUMP_IF_FALSE_OR_POP(m: Machine, f: Frame, i: Instruction) -> None:
    if not f.stack[-1].truth(m):
        f.jump(i.value)
    else:
        f.pop()


def GET_ITER(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(iterate(m, f.pop()))


def FOR_ITER(m: Machine, f: Frame, i: Instruction) -> None:
    try:
        f.push(f.stack[-1].next(m))
    except Exhausted:
        f.pop()
        f.jump(i.value)
        if i.value.name == "END_FOR":
            f.position += LOOP_END
