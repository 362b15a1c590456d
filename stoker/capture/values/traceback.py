"""Tracebacks and their frames: where an exception has passed in captured code.

In:  passages: each a code object and the position of the instruction that the exception left it at.
Out: values that answer what programs ask of tracebacks, and real tracebacks for exceptions that leave the captured code. Their
     frames are those of functions with the names, files and lines of the passages, so that a printed one reads as eager's
     (tests/differential/test_tracebacks.py).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from stoker.bytecode import Instruction, Positions, assemble, build
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Value
from stoker.errors import SkipFrame


@dataclass(frozen=True, slots=True)
class Passage:
    """Where an exception left a frame."""

    code: types.CodeType
    globals: dict[str, Any]
    positions: Positions | None
    offset: int | None  # of the instruction, in bytes; of code of our own there is none

    @property
    def line(self) -> int:
        found = self.positions.lineno if self.positions is not None else None
        return found if found is not None else self.code.co_firstlineno


class TracebackValue(Value):
    """The traceback of an exception: passages, outermost first, and the traceback that it already had before the call."""

    def __init__(self, passages: Sequence[Passage], below: Value) -> None:
        self.passage, rest = passages[0], passages[1:]
        self.below = TracebackValue(rest, below) if rest else below
        self.frame = FrameValue(self.passage)

    def python_type(self) -> type:
        return types.TracebackType

    def attribute(self, m: Machine, name: str) -> Value:
        match name:
            case "tb_lineno":
                return Constant(self.passage.line)
            case "tb_next":
                return m.wrap.force(self.below)
            case "tb_frame":
                return self.frame
            case "tb_lasti" if self.passage.offset is not None:
                return Constant(self.passage.offset)
        return super().attribute(m, name)

    def emit(self, e: Emitting) -> None:
        e.call_function(_traceback, [Constant(_raising(self.passage)), self.below])


class FrameValue(Value):
    """A frame that an exception has left. Its variables are gone."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage

    def python_type(self) -> type:
        return types.FrameType

    def attribute(self, m: Machine, name: str) -> Value:
        match name:
            case "f_code":
                return m.wrap.object(self.passage.code)
            case "f_globals":
                return m.wrap.globals(self.passage.globals)
        return self.unsupported(f"attribute {name!r}")

    def unsupported(self, what: str, fix: str | None = None) -> NoReturn:
        raise SkipFrame(f"it looks at a frame that an exception has left: {what}")

    def emit(self, e: Emitting) -> None:
        self.unsupported("the frame itself")


def _raising(passage: Passage) -> types.FunctionType:
    """A function that raises, in a frame that looks like the passage."""
    original = passage.code
    body = [*build.load_const(Exception), Instruction("RAISE_VARARGS", 1)]
    for instruction in body:
        instruction.positions = passage.positions or Positions(passage.line, passage.line)
    code = assemble(
        body, name=original.co_name, filename=original.co_filename, firstlineno=original.co_firstlineno
    ).replace(co_qualname=original.co_qualname)
    return types.FunctionType(code, passage.globals)


def _traceback(raising: Callable[[], None], below: types.TracebackType | None) -> types.TracebackType:
    """Its frames know this one as their caller: with a name of it here, they would keep each other alive."""
    made: list[types.TracebackType] = []
    try:
        raising()
    except Exception as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        made.append(error.__traceback__.tb_next)
    made[0].tb_next = below
    return made.pop()
