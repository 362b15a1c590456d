"""The evaluator: runs a frame's instructions over Values, and stops where Python cannot be captured.

In:  a code object about to be called, its bound arguments, its function.
Out: the pieces of a `Capture`: graph, guards, effects, and where and why it stopped.

Requirements:
  1. Running a frame changes nothing that the user's program can see (torch's own modes are restored afterwards).
  2. Evaluation is a function of its inputs: a second run stops at the same instruction (breaks are placed by re-running).
"""

from __future__ import annotations

import functools
import itertools
import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker import torch_private
from stoker.bytecode import Instruction
from stoker.capture.array import Arrays
from stoker.capture.attribute import Attributes
from stoker.capture.effect import Effects
from stoker.capture.frame import Frame, program_of
from stoker.capture.inline import Calls
from stoker.capture.opcodes import HANDLERS
from stoker.capture.override import Overrides
from stoker.capture.policy import Policy
from stoker.capture.protocol import Protocol
from stoker.capture.record import Recording
from stoker.capture.sizes import History, Sizes
from stoker.capture.text import Text
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Lazy, Value
from stoker.capture.wrap import Wrapping
from stoker.errors import Break, Raised, StepBreak
from stoker.fake import FakeMode
from stoker.guard.guard import Guard
from stoker.guard.source import Closure, Local, Source
from stoker.shape import ShapeEnv


@dataclass(frozen=True)
class Request:
    """A frame about to run."""

    code: types.CodeType
    function: types.FunctionType
    bound: list[Any]


@dataclass
class Stop:
    """How evaluation of the root frame ended: it returned, or it must break before an instruction."""

    returned: Value | None = None
    instruction: Instruction | None = None
    reason: Break | None = None


@dataclass
class Steps:
    """Where to break, decided by an earlier run: the number of root instructions to execute, and why."""

    limit: int | None = None
    reason: Break | None = None


class Machine(Protocol, Text, Attributes, Wrapping, Recording, Calls, Overrides, Arrays, Effects):
    """One capture of one frame."""

    def __init__(self, request: Request, policy: Policy, history: History, dynamic: bool | None) -> None:
        self.request, self.policy = request, policy
        self.graph = Graph()
        self.inputs: list[tuple[Node, Source, Any]] = []
        self.guards: dict[Any, Guard] = {}
        self.wrapped: dict[int, tuple[Value, Any]] = {}
        self.class_attributes: dict[type, dict[str, Any]] = {}
        self.tensor_of_fake: dict[int, TensorValue] = {}
        self.object_nodes: dict[int, Node] = {}
        self.conversions: dict[Node, Callable[[Any], Any]] = {}
        self.mutated: dict[int, Value] = {}
        self.deferred: list[tuple[Value, list[Value], dict[str, Value]]] = []
        self.env = ShapeEnv()
        self.fake_mode = FakeMode(self.env)
        self.sizes = Sizes(self.env, history, dynamic)
        self.depth = self.mode_changes = self.step = 0
        self.made_classes: dict[type, int] = {}  # made by captured code, and by which instruction of the root frame
        self.open_scopes: list[Any] = []
        self.abandoned: list[Frame] = []
        self.raised_at: dict[int, tuple[int, Value]] = {}
        self.names: set[str] = set()
        self.inlined: set[types.CodeType] = set()
        self.counter = itertools.count()
        self.start_overrides()
        self.root = self.root_frame()
        self.current: Frame = self.root

    tensor_functions = Policy.tensor_functions()

    def root_frame(self) -> Frame:
        code, function = self.request.code, self.request.function
        frame = Frame(program_of(code), self.globals_of(function.__globals__))
        for index, real in enumerate(self.request.bound):
            name = code.co_varnames[index]
            frame.locals[name] = Lazy(real, Local(index, name))
        for index, name in enumerate(code.co_freevars):
            cell = function.__closure__[index]  # type: ignore[index]
            frame.cells[name] = self.wrap_cell(cell, Closure(index, name), root_name=name)
        return frame

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
            try:
                outcome = HANDLERS[instruction.name](self, frame, instruction)
                if outcome is not None:
                    frame.clear()
                if self.abandoned:
                    self.close_abandoned()
            except Raised as raised:
                self.current = frame
                first = self.raised_at.setdefault(id(raised.value), (count - 1, raised.value))[0]
                try:
                    self.unwind(frame, instruction, raised)
                except Raised as escaped:
                    raise StepBreak(first, self.escaping(escaped)) from raised
                outcome = None
            except Break as reason:
                self.blame(reason)
                self.current = frame
                raise StepBreak(count - 1, reason) from reason
            if outcome is not None:
                return Stop(returned=outcome)

    def escaping(self, raised: Raised) -> Break:
        """An exception that leaves the frame: CPython raises it, with its own traceback."""
        reason = Break(
            "an exception",
            f"{raised.value.describe()} leaves the function",
            "nothing to fix: the exception is raised by running this part in CPython",
        )
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
                if self.abandoned:
                    self.close_abandoned()
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
        if handler is None:
            raise raised
        if frame is self.root and isinstance(raised.value, ExceptionValue) and raised.value.positions is None:
            raised.value.positions = instruction.positions
        if isinstance(raised.value, ExceptionValue) and frame.handled and "__context__" not in raised.value.links:
            if frame.handled[-1] is not raised.value:
                raised.value.link(self, "__context__", frame.handled[-1])
        del frame.stack[handler.depth :]
        if handler.lasti:
            frame.push(Constant(0))
        frame.push(raised.value)
        frame.jump(handler.target)

    def blame(self, reason: Break) -> None:
        """Give a break the user's line, the innermost one that is not library code."""
        if reason.location:
            return
        frame: Frame | None = self.current
        while frame is not None and frame.parent is not None and self.policy.is_library(frame.code.co_filename):
            frame = frame.parent
        assert frame is not None
        reason.location = f"{frame.code.co_filename}:{frame.line} in {frame.code.co_qualname}"
        reason.line = linecache.getline(frame.code.co_filename, frame.line).strip()

    def location(self) -> str:
        frame = self.current if hasattr(self, "current") else None
        return f"{frame.code.co_filename}:{frame.line}" if frame is not None else ""

    def fresh_input_name(self, source: Source) -> str:
        text = "".join(c if c.isalnum() or c == "_" else "_" for c in source.text).strip("_") or "input"
        if text == "self":  # torch.fx takes a first input of this name for the module itself
            return "self_"
        return text if not text[0].isdigit() else f"input_{text}"

    def fresh(self, prefix: str) -> str:
        return f"__stoker_{prefix}_{next(self.counter)}"


@dataclass
class TorchModes:
    """torch's thread-local modes: captured code changes them for real while it is evaluated; they are put back."""

    saved: list[Callable[[], None]] = field(default_factory=list)

    def __enter__(self) -> TorchModes:
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        dtype = torch.get_default_dtype()
        cache = torch.is_autocast_cache_enabled()
        self.saved = [
            lambda: torch_private.set_grad_enabled(grad),
            lambda: torch.set_default_dtype(dtype),
            lambda: torch.set_autocast_cache_enabled(cache),
        ]
        for device in ("cpu", "cuda"):
            enabled, kind = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
            self.saved.append(lambda d=device, e=enabled: torch.set_autocast_enabled(d, e))
            self.saved.append(lambda d=device, k=kind: torch.set_autocast_dtype(d, k))
        for get, set_ in torch_private.ATTENTION_SWITCHES.values():
            self.saved.append(functools.partial(set_, get()))
        self.inference = inference
        return self

    def __exit__(self, *_: object) -> None:
        for restore in self.saved:
            restore()
