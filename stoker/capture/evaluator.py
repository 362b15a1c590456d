"""The evaluator: runs a frame's instructions over Values, and stops where Python cannot be captured.

In:  a code object about to be called, its bound arguments, its function.
Out: the pieces of a `Capture`: graph, guards, effects, and where and why it stopped.

Requirements:
  1. Running a frame changes nothing that the user's program can see (torch's own modes are restored afterwards).
  2. Evaluation is a function of its inputs: a second run stops at the same instruction (breaks are placed by re-running).
"""

from __future__ import annotations

import itertools
import linecache
import time
import types
import warnings
from dataclasses import dataclass, field
from typing import Any

from stoker.bytecode import Instruction
from stoker.capture.arrays import Arrays
from stoker.capture.attributes import Attributes
from stoker.capture.calls import Calls
from stoker.capture.concrete import Concrete
from stoker.capture.effects import Effects
from stoker.capture.exceptions import Exceptions
from stoker.capture.frame import Frame, program_of
from stoker.capture.guards import Guards
from stoker.capture.modes import Modes
from stoker.capture.opcodes import HANDLERS
from stoker.capture.operators import Operators
from stoker.capture.overrides import Overrides
from stoker.capture.place import Place, calling_line, place_of
from stoker.capture.policy import POLYFILL, Policy
from stoker.capture.record import GraphRecorder
from stoker.capture.sizes import History, Sizes
from stoker.capture.text import Text
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import wrap_cell
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.reference import hold_targets
from stoker.capture.values.rounds import is_a_round
from stoker.capture.values.traceback import Passage
from stoker.capture.values.value import Lazy, MadePart, Value
from stoker.capture.wrap import Wrapper
from stoker.errors import BeginAnew, Break, Raised, StepBreak
from stoker.graph.calling import called_at, quietly
from stoker.guard.source import Closure, Local
from stoker.shape import ShapeEnv


@dataclass(frozen=True)
class Request:
    """A frame about to run."""

    code: types.CodeType
    function: types.FunctionType
    bound: list[Any]
    began: float = field(default_factory=time.perf_counter)
    """When its compilation began."""

    @property
    def place(self) -> Place:
        return place_of(self.code, self.function, self.bound)


@dataclass
class Stop:
    """How evaluation of the root frame ended: it returned, it raised, or it must break before an instruction."""

    returned: Value | None = None
    raised: ExceptionValue | None = None
    instruction: Instruction | None = None
    reason: Break | None = None
    step: int | None = None  # of what it raised: the root instruction that raised it first


@dataclass
class Steps:
    """Where to break, decided by an earlier run: the number of root instructions to execute, and why."""

    limit: int | None = None
    reason: Break | None = None


class Evaluator:
    """One capture of one frame: its components, and the loop over instructions. Others know it as a `Machine`."""

    tensor_functions = Policy.tensor_functions()

    def __init__(
        self, request: Request, policy: Policy, history: History, dynamic: bool | None, fullgraph: bool = False
    ) -> None:
        self.request, self.policy = request, policy
        self.env = ShapeEnv()
        least = 1 if is_a_round(request.code) else 2
        self.sizes = Sizes(self.env, history, dynamic, unrolls=fullgraph, least=least)
        self.guards, self.effects, self.modes = Guards(self), Effects(), Modes()
        self.wrap, self.record, self.concrete = Wrapper(self), GraphRecorder(self, self.env), Concrete(self)
        self.attributes, self.operators, self.calls = Attributes(self), Operators(self), Calls(self)
        self.exceptions, self.text = Exceptions(self), Text(self)
        self.overrides, self.arrays = Overrides(self), Arrays(self)
        self.step = 0  # how many instructions of the root frame were executed before this one
        self.made_classes: dict[type, MadePart] = {}  # made by captured code
        self.made_parts: dict[int, MadePart] = {}  # these classes and what they hold, by identity
        self.raised_at: dict[int, tuple[int, Value]] = {}
        self.inlined: set[types.CodeType] = set()
        self.counter = itertools.count()
        self.root = Frame(program_of(request.code), self.wrap.globals(request.function.__globals__))
        self.current = self.root
        self.bind_root()

    def close(self) -> None:
        """Components and evaluator refer to each other: without this, what was captured would live until a collection."""
        self.record.fake_mode.close()
        vars(self).clear()

    def bind_root(self) -> None:
        """Arguments and free variables of the captured frame: nobody has looked at them."""
        code, closure = self.request.code, self.request.function.__closure__ or ()
        for index, real in enumerate(self.request.bound):
            name = code.co_varnames[index]
            self.root.locals[name] = Lazy(real, Local(index, name))
        for index, (name, cell) in enumerate(zip(code.co_freevars, closure)):
            self.root.cells[name] = wrap_cell(self, cell, Closure(index, name), root_name=name)

    def evaluate(self, steps: Steps) -> Stop:
        """Run the root frame to its end, or to where `steps` says to break."""
        frame = self.root
        count = 0
        while True:
            instruction = frame.instructions[frame.position]
            if steps.limit is not None and count == steps.limit:
                return Stop(instruction=instruction, reason=steps.reason)
            frame.position += 1
            self.step = count
            count += 1
            recorded = len(self.record.graph.nodes)
            try:
                outcome = HANDLERS[instruction.name](self, frame, instruction)
                if outcome is not None:
                    hold_targets(self)
                    frame.clear()
                if self.calls.abandoned:
                    self.calls.close_abandoned()
            except Raised as raised:
                self.current = frame
                first = self.raised_at.setdefault(id(raised.value), (count - 1, raised.value))[0]
                try:
                    self.unwind(frame, instruction, raised)
                except Raised as escaped:
                    if self.modes.told_compiling:  # it may raise for that alone
                        self.sizes.history.hears_eager = True
                        raise BeginAnew from escaped
                    if self.can_raise(escaped.value, first, recorded):
                        return Stop(raised=escaped.value, step=first)
                    raise StepBreak(first, self.escaping(escaped)) from raised
                outcome = None
            except Break as reason:
                self.blame(reason)
                self.current = frame
                raise StepBreak(count - 1, reason) from reason
            except (RecursionError, MemoryError) as error:
                self.current = frame
                raise StepBreak(count - 1, self.too_much(error)) from error
            if outcome is not None:
                return Stop(returned=outcome)

    def can_raise(self, value: Value, first: int, recorded: int) -> bool:
        """Does replacement code raise it? Not what C code raises at once, in an instruction of the root frame that does nothing else:
        CPython runs that instruction, and says it in its own words."""
        if not isinstance(value, ExceptionValue) or value.source is not None:
            return False
        at_once = first == self.step and len(value.trail) == 1 and len(self.record.graph.nodes) == recorded
        return value.by_program or not at_once

    def escaping(self, raised: Raised) -> Break:
        """An exception that leaves the frame: CPython raises it, with its own traceback. Nothing comes after it, so that it cuts
        no graph, unless it is one from outside."""
        reason = Break(
            "an exception",
            f"{raised.value.describe()} leaves the function",
            "nothing to fix: the exception is raised by running this part in CPython",
        )
        reason.is_end = isinstance(raised.value, ExceptionValue) and raised.value.source is None
        self.blame(reason)
        return reason

    def too_much(self, error: Exception) -> Break:
        """What the program makes is too deep or too large to be evaluated: CPython runs it, and raises what there is to raise."""
        reason = Break("an object or a call", f"it is too deep or too large to capture ({type(error).__name__})")
        self.blame(reason)
        return reason

    def run(self, frame: Frame) -> Value | None:
        """Run an inlined frame to its return value, or to a yield (then `frame.yielded` is set)."""
        instructions = frame.instructions
        self.inlined.add(frame.code)
        while True:
            instruction = instructions[frame.position]
            frame.position += 1
            try:
                outcome = HANDLERS[instruction.name](self, frame, instruction)
                if self.calls.abandoned:
                    self.calls.close_abandoned()
            except Raised as raised:
                self.current = frame
                self.unwind(frame, instruction, raised)
                continue
            except Break as reason:
                self.blame(reason)
                raise
            if outcome is not None:
                return outcome

    def unwind(self, frame: Frame, instruction: Instruction, raised: Raised) -> None:
        """Go to the handler that covers the instruction, or raise on."""
        handler = instruction.handler
        if isinstance(raised.value, ExceptionValue) and self.effects.references:
            raised.value.frames.append(frame)
        if isinstance(raised.value, ExceptionValue) and _adds_to_traceback(frame, instruction):
            raised.value.passes(
                self,
                Passage(frame.program.origin.code, frame.globals.real or {}, instruction.positions, instruction.offset),
            )
        if handler is None:
            raise raised
        if isinstance(raised.value, ExceptionValue) and frame.handled and not _goes_on(instruction):
            if "__context__" not in raised.value.links and frame.handled[-1] is not raised.value:
                raised.value.link(self, "__context__", frame.handled[-1])
        del frame.stack[handler.depth :]
        if handler.lasti:
            frame.push(Constant(0))
        frame.push(raised.value)
        frame.jump(handler.target)

    def blame(self, reason: Break) -> None:
        """Give a break the user's line, the innermost one that is not library code, and the library's if it is in one."""
        if reason.location:
            return
        own, frame = self.current, self.current
        while frame.parent is not None and self.policy.is_library(frame.code.co_filename):
            frame = frame.parent
        code, line = frame.code, frame.line
        if self.policy.is_library(code.co_filename):
            code, line = calling_line(self.policy) or (code, line)
        reason.location, reason.line = _line_of(code, line)
        if own.code is not code:
            reason.inside = _line_of(own.code, own.line)[0]

    def location(self) -> str:
        return f"{self.current.code.co_filename}:{self.current.line}"

    def here(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function of torch as if the line that is evaluated did: it may warn, by filters that the program has not changed."""
        frame = self.current
        if id(self.wrap.globals(vars(warnings))) in self.effects.mutated:
            return quietly(function, args, kwargs)
        return called_at(frame.code, frame.line or 1, frame.globals.real or {})(function, args, kwargs)

    def fresh(self, prefix: str) -> str:
        return f"__stoker_{prefix}_{next(self.counter)}"


def _goes_on(instruction: Instruction) -> bool:
    """Does it raise on what was raised before, as it is?"""
    bare = (instruction.name, instruction.value) == ("RAISE_VARARGS", 0)
    return bare or instruction.name in ("RERAISE", "CLEANUP_THROW")


def _adds_to_traceback(frame: Frame, instruction: Instruction) -> bool:
    """CPython adds the frame when an exception is raised there, not when it goes on. Our own frames stand for functions of C."""
    return not _goes_on(instruction) and not frame.code.co_filename.startswith(POLYFILL)


def _line_of(code: types.CodeType, line: int) -> tuple[str, str]:
    return f"{code.co_filename}:{line} in {code.co_qualname}", linecache.getline(code.co_filename, line).strip()
