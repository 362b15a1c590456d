"""A symbolic frame: where execution stands in one code object, and what its variables hold."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any

from stoker.bytecode import Instruction, decode, live_cells, live_locals
from stoker.bytecode.versions import NULL_BEFORE_CALLABLE, SEND_KEEPS_ITERATOR
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import NULL, Value


class DecodedCode:
    """The decoded instructions of a code object, with the analyses that resuming needs, made once."""

    def __init__(self, code: CodeType, instructions: list[Instruction], origin: DecodedCode | None = None) -> None:
        self.code, self.instructions = code, instructions
        self.index = {id(instruction): index for index, instruction in enumerate(instructions)}
        self.origin = origin or self
        self.resumes: dict[Any, CodeType] = {}

    @cached_property
    def live_locals(self) -> list[frozenset[str]]:
        return live_locals(self.instructions)

    @cached_property
    def live_cells(self) -> list[frozenset[str]]:
        return live_cells(self.instructions)


_programs: weakref.WeakKeyDictionary[CodeType, DecodedCode] = weakref.WeakKeyDictionary()


def program_of(code: CodeType) -> DecodedCode:
    found = _programs.get(code)
    if found is None:
        found = _programs[code] = DecodedCode(code, decode(code))
    return found


def register_program(code: CodeType, program: DecodedCode) -> None:
    """A resume function is evaluated by the instructions it was made from, so that its own breaks lead back to them."""
    _programs[code] = program


@dataclass
class Frame:
    """One activation."""

    program: DecodedCode
    globals: DictValue
    parent: Frame | None = None
    locals: dict[str, Value] = field(default_factory=dict)
    cells: dict[str, Any] = field(default_factory=dict)
    stack: list[Value] = field(default_factory=list)
    position: int = 0
    keyword_names: tuple[str, ...] = ()
    yielded: Value | None = None
    names: DictValue | None = None  # where code that is no function's has its variables
    handled: list[Value] = field(default_factory=list)

    @property
    def code(self) -> CodeType:
        return self.program.code

    @property
    def instructions(self) -> list[Instruction]:
        return self.program.instructions

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def push_callable(self, value: Value, wants_null: int) -> None:
        """Push a loaded callable, with the NULL that this version's calls expect beside it."""
        if wants_null and NULL_BEFORE_CALLABLE:
            self.push(NULL)
        self.push(value)
        if wants_null and not NULL_BEFORE_CALLABLE:
            self.push(NULL)

    def finish_send(self, result: Value) -> None:
        """SEND met the end: on 3.11 the result replaces the iterator, later versions keep both for END_SEND."""
        if not SEND_KEEPS_ITERATOR:
            self.pop()
        self.push(result)

    def pop(self) -> Value:
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Value]:
        if count == 0:
            return []
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def clear(self) -> None:
        """Let go of everything, as a frame does that has returned."""
        self.locals, self.cells, self.stack = {}, {}, []

    def jump(self, target: Instruction) -> None:
        self.position = self.program.index[id(target)]

    @property
    def line(self) -> int:
        index = min(max(self.position - 1, 0), len(self.instructions) - 1)
        positions = self.instructions[index].positions
        return positions[0] if positions and positions[0] else self.code.co_firstlineno
