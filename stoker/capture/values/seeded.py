"""Generators of random numbers that captured code makes of a known seed: a real one, which captured code alone can see, stands for it.

What it draws is known while capturing. Where it is seen later, by other code or behind a break, one in the same state is made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from stoker.bytecode import build
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.value import Value
from stoker.guard.source import Source


class SeededValue(Value):
    """A generator of Python or numpy."""

    real: Any = None

    def __init__(self, generator: Any, make: Callable[[], Any]) -> None:
        self.generator, self.make = generator, make  # one like it, in whatever state

    def found_at(self, source: Source) -> None:
        """It is given a state that is not known: it is another one in each call, made before the captured code."""
        self.source, self.real = source, self.make()

    def python_type(self) -> type:
        return type(self.generator)

    def describe(self) -> str:
        return f"the {type(self.generator).__name__} that captured code made"

    def attribute(self, m: Machine, name: str) -> Value:
        return SeededBits(self) if name == "bit_generator" else BuiltinMethod(self, name)

    def draw(self, m: Machine, step: Callable[[Any], Any]) -> Any:
        """What it gives now; it moves on."""
        m.effects.will_mutate(self)
        return m.concrete.run(step, self.generator)

    def emit(self, e: Emitting) -> None:
        e.call_function(copy.deepcopy, [Constant(copy.deepcopy(self.generator))])


def read_seeded(generator: Any) -> Any:
    """`generator.bit_generator.state`, of a generator that captured code made."""
    return generator.bit_generator.state


def write_seeded(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


class SeededBits(Value):
    """Where such a generator of numpy takes its bits from."""

    def __init__(self, generator: SeededValue) -> None:
        self.generator = generator

    def python_type(self) -> type:
        return type(self.generator.generator.bit_generator)

    def attribute(self, m: Machine, name: str) -> Value:
        if name != "state":
            self.unsupported(f"attribute {name!r}")
        return m.wrap.object(read_seeded).call(m, [self.generator], {})

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        if name != "state":
            self.unsupported(f"assignment to attribute {name!r}")
        m.wrap.object(write_seeded).call(m, [self.generator, value], {})

    def emit(self, e: Emitting) -> None:
        e.load(self.generator)
        e.code += build.load_attr("bit_generator")


class StateValue(Value):
    """The state of a generator with a known seed: captured code may give it to a generator, and pass it on."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def python_type(self) -> type:
        return type(self.state)

    def describe(self) -> str:
        return "the state of a generator that captured code made"

    def truth(self, m: Machine) -> bool:
        return True

    def emit(self, e: Emitting) -> None:
        e.call_function(copy.deepcopy, [Constant(self.state)])
