"""Generators that existed before the call and have not begun: what they will give is their code's to say, so it is entered.

One that captured code exhausts is closed behind the graph, as it would be in eager. One that is left in the middle could not be
written back: the break is where it was first advanced.
"""

from __future__ import annotations

import functools
import gc
import inspect
import types
from collections.abc import Callable
from typing import Any

from stoker.capture.frame import Frame, program_of
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.function import wrap_cell
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.value import Lazy, Value
from stoker.errors import Break, Raised, StepBreak
from stoker.guard.guard import Is
from stoker.guard.source import Asked, Attribute, Source


class PendingGenerator(GeneratorValue):
    """A generator that existed before the call and had not begun."""

    def __init__(self, frame: Frame, real: types.GeneratorType, source: Source) -> None:
        super().__init__(frame, [])
        self.real, self.source = real, source
        self.step: int | None = None

    def __del__(self) -> None:
        """It is the caller's: dropping it here closes nothing."""

    def resume(self, m: Machine, sent: Value | None, raised: Raised | None = None) -> Value:
        self.change(m)
        return super().resume(m, sent, raised)

    def method_close(self, m: Machine) -> Value:
        self.change(m)
        return super().method_close(m)

    def change(self, m: Machine) -> None:
        m.effects.will_mutate(self)
        self.step = m.step if self.step is None else self.step

    def write_back(self, e: Emitting) -> None:
        assert self.step is not None
        if not self.finished:
            reason = Break(
                "a generator from outside",
                f"{self.describe()} is left in the middle",
                "pass a list, or create the generator inside the compiled function",
            )
            e.m.blame(reason)
            raise StepBreak(self.step, reason)
        e.call_function(types.GeneratorType.close, [self])
        e.pop()


def pending_generator(m: Machine, real: types.GeneratorType, source: Source) -> Value | None:
    """The generator, ready to be entered; None if it has begun, or its code must not be entered."""
    function = _function(real)
    if function is None or m.policy.refuse_inline(function) is not None:
        return None
    m.guards.ask(source, real, inspect.getgeneratorstate, "has not begun")
    m.guards.add(Attribute(source, "gi_code"), Is(real.gi_code))
    frame = Frame(program_of(real.gi_code), m.wrap.globals(function.__globals__))
    free = real.gi_code.co_freevars
    for name, value in _locals(real).items():
        if name not in free:
            frame.locals[name] = Lazy(value, Asked(source, _local(name)))
    for index, name in enumerate(free):
        question = _cell(index)
        frame.cells[name] = wrap_cell(m, question(real), Asked(source, question))
    return PendingGenerator(frame, real, source)


def _function(generator: types.GeneratorType) -> types.FunctionType | None:
    """The function that made a generator which has not begun: its frame holds it, and nothing else with the same code."""
    if inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
        return None
    held = [found for found in gc.get_referents(generator) if isinstance(found, types.FunctionType)]
    makers = [found for found in held if found.__code__ is generator.gi_code]
    return makers[0] if len(makers) == 1 else None


def _locals(generator: types.GeneratorType) -> dict[str, Any]:
    frame = generator.gi_frame
    return frame.f_locals if frame is not None else {}


@functools.cache
def _local(name: str) -> Callable[[types.GeneratorType], Any]:
    def local(generator: types.GeneratorType) -> Any:
        return _locals(generator)[name]

    local.__name__ = f"local_{name}"
    return local


@functools.cache
def _cell(index: int) -> Callable[[types.GeneratorType], Any]:
    def cell(generator: types.GeneratorType) -> Any:
        function = _function(generator)
        assert function is not None and function.__closure__ is not None
        return function.__closure__[index]

    cell.__name__ = f"cell_{index}"
    return cell
