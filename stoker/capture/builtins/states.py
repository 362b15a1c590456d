"""States of Python's and numpy's generators, which captured code reads and writes.

A state that is read is foretold, as a number is that is drawn, and is an object from outside. A generator that is given a state draws, from
then on, what another one in that state would: the questions of guards are asked of the state.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from stoker.capture.builtins.drawing import (
    BITS,
    BITS_READ,
    STATES,
    Draw,
    Drawn,
    Fresh,
    bits_of,
    drawn_from,
    write_bits,
)
from stoker.capture.handlers import handles, on_object, reads_field, writes_field
from stoker.capture.machine import Machine
from stoker.capture.values.array import ArrayValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.seeded import SeededValue, StateValue, read_seeded, write_seeded
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.guard import Is
from stoker.guard.source import Asked, Attribute, Fixed, Source

READ, WRITE = "a read of a generator's state", "a write of a generator's state"
Setter = Callable[[Any, Any], None]


def read(m: Machine, generator: Value, step: Draw) -> Value:
    if isinstance(generator, SeededValue) and generator.source is None:
        return StateValue(m.concrete.run(step.take, generator.generator))
    return m.wrap.at(*drawn_from(m, generator, READ).foretell(m, step))


def write(m: Machine, generator: Value, state: Value, setter: Setter) -> Value:
    state = m.wrap.force(state)
    if isinstance(generator, SeededValue) and generator.source is None:
        if isinstance(state, StateValue):
            generator.draw(m, lambda real: setter(real, state.state))
            return Constant(None)
        generator.found_at(Asked(Fixed(random, "random"), Fresh(generator.make)))
    drawn = drawn_from(m, generator, WRITE)
    real, where = generator.real, generator.source  # type: ignore[attr-defined]  # it has looked
    assert where is not None
    content, source = _given(m, state)
    make = functools.partial(_alike, type(real), _class_of_bits(real))
    m.guards.add(Asked(where, _class_of_bits), Is(_class_of_bits(real)))
    accepts = _Accepts(make, setter)
    m.concrete.run(accepts, content)  # what it raises, the program raises
    m.guards.add(Asked(source, accepts), Is(None))
    m.effects.defer(BuiltinValue(setter), [generator, state], {})
    m.effects.drawn[id(bits_of(real))] = Drawn(drawn.place, content, source, (), make, setter)
    return Constant(None)


def _class_of_bits(generator: Any) -> Any:
    """What a generator of numpy takes its bits from: states of one are none of another."""
    if type(generator) is numpy.random.RandomState:
        return getattr(numpy.random, generator.get_state(legacy=False)["bit_generator"])
    return type(bits_of(generator)) if type(generator) is not random.Random else None


def _alike(cls: type, bits: Any) -> Any:
    """A generator that can be in the states of another one."""
    if bits is None:
        return cls(0)
    return (cls if cls is numpy.random.RandomState else numpy.random.Generator)(bits(0))


@dataclass(frozen=True, slots=True, eq=False)
class _Accepts:
    """A state is given to a generator, which refuses what is none."""

    make: Callable[[], Any]
    setter: Setter

    @property
    def __name__(self) -> str:
        return "a_generator_in_the_state"

    def __call__(self, state: Any) -> None:
        self.setter(self.make(), state)


def _given(m: Machine, state: Value) -> tuple[Any, Source]:
    """A state, and where it is found."""
    if isinstance(state, StateValue):
        return state.state, Fixed(state.state, "a state")
    if state.source is None:
        plain = m.concrete.data(state, WRITE)
        return plain, Fixed(plain, "a state")
    content = next((real for value, real in m.wrap.known.values() if value is state), None)
    if content is None:
        raise Break(WRITE, f"{state.describe()} is no state")
    for part in _parts(content):
        value, real = m.wrap.known.get(id(part), (None, None))
        if real is part and (isinstance(value, ArrayValue) or id(value) in m.effects.mutated):
            raise Break(
                WRITE, f"captured code may have written to {state.describe()}", "give it a state as it was read"
            )
    return content, state.source


def _parts(content: Any) -> Iterator[Any]:
    yield content
    if isinstance(content, (tuple, list, dict)):
        for part in content.values() if isinstance(content, dict) else content:
            if isinstance(part, (tuple, list, dict, numpy.ndarray)):
                yield from _parts(part)


def _register(cls: Any, reader: str, writer: str) -> None:
    def told(m: Machine, generator: Value, *args: Value, **kwargs: Value) -> Value:
        known = tuple(m.concrete.constant(a, READ) for a in args)
        return read(m, generator, Draw(reader, known, {k: m.concrete.constant(a, READ) for k, a in kwargs.items()}))

    def given(m: Machine, generator: Value, state: Value) -> Value:
        return write(m, generator, state, vars(cls)[writer])

    for name, handler in ((reader, told), (writer, given)):
        handles(vars(cls)[name])(handler)
        on_object(vars(cls)[name])(handler)


_register(random.Random, "getstate", "setstate")
_register(numpy.random.RandomState, "get_state", "set_state")


@reads_field(vars(numpy.random.Generator)["bit_generator"])
def bit_generator(m: Machine, generator: Value) -> Value:
    assert generator.source is not None
    return m.wrap.at(generator.real.bit_generator, Attribute(generator.source, "bit_generator"))  # type: ignore[attr-defined]  # from outside


@handles(read_seeded)
@reads_field(*(vars(cls)["state"] for cls in BITS))
def read_state(m: Machine, generator: Value) -> Value:
    return read(m, generator, Draw(BITS_READ, (), {}))


@handles(write_seeded)
@writes_field(*(vars(cls)["state"] for cls in BITS))
def write_state(m: Machine, generator: Value, state: Value) -> Value:
    return write(m, generator, state, write_bits)


assert {random.Random, numpy.random.RandomState, numpy.random.Generator, *BITS} == STATES.keys()
