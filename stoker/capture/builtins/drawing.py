"""Numbers drawn from Python's and numpy's generators, and seeds.

What captured code draws is known before it runs: the generator is asked, and put back as it was. So a number drawn is like a number from
outside, which graphs take as an input and guards may look at; the generator itself moves on once the graph has run.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch

from stoker.capture.handlers import describe, handles, on_object
from stoker.capture.machine import Machine
from stoker.capture.values.array import DTYPES, ArrayValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.seeded import SeededValue
from stoker.capture.values.sequence import ListValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import VaryingFloat
from stoker.errors import Break
from stoker.guard.guard import InRange, NotSameAs, TypeIs
from stoker.guard.source import Asked, Fixed, Item, Source

_LEGACY: Any = numpy.random.mtrand._rand

BITS = tuple(getattr(numpy.random, name) for name in ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
"""What generators of numpy take their bits from, and where their state is."""


def read_bits(generator: Any) -> Any:
    return bits_of(generator).state


def write_bits(generator: Any, state: Any) -> None:
    bits_of(generator).state = state


def bits_of(generator: Any) -> Any:
    """Two generators of numpy may take their bits from one place."""
    return generator.bit_generator if type(generator) is numpy.random.Generator else generator


STATES: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    random.Random: (random.Random.getstate, random.Random.setstate),
    numpy.random.RandomState: (lambda g: g.get_state(legacy=False), numpy.random.RandomState.set_state),
    numpy.random.Generator: (read_bits, write_bits),
    **dict.fromkeys(BITS, (read_bits, write_bits)),
}
"""Generators, how they tell their state, and how they are given it."""

DRAWS = {
    random.Random: """random uniform triangular gauss normalvariate lognormvariate expovariate vonmisesvariate gammavariate betavariate
        paretovariate weibullvariate randint randrange getrandbits choice choices sample seed""",
    numpy.random.RandomState: """random random_sample rand randn uniform normal standard_normal exponential beta gamma lognormal laplace
        logistic gumbel triangular randint binomial poisson permutation choice seed""",
    numpy.random.Generator: """random uniform normal standard_normal exponential beta gamma lognormal laplace logistic gumbel
        triangular integers binomial poisson permutation choice""",
}
"""Methods that draw, and nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One call of a generator's method."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def take(self, generator: Any) -> Any:
        if self.name in STEPS:
            return STEPS[self.name](generator, *self.args)
        return getattr(generator, self.name)(*self.args, **self.kwargs)


def shuffled(generator: random.Random, items: list[Any]) -> list[Any]:
    """The items in another order; the list is left as it is."""
    found = list(items)
    generator.shuffle(found)
    return found


SHUFFLE, BITS_READ = "shuffle", "bit_generator.state"
STEPS: dict[str, Callable[..., Any]] = {SHUFFLE: shuffled, BITS_READ: read_bits}
"""Steps that are no method which only gives something."""


@dataclass(frozen=True, slots=True, eq=False)
class Foretold:
    """What the last of some steps gives. The generator is left as it was. `make`: of a state, how to make a generator that can be in it, and
    `setter`: how to put it there."""

    steps: tuple[Draw, ...]
    make: Callable[[], Any] | None = None
    setter: Callable[[Any, Any], None] | None = None

    @property
    def __name__(self) -> str:
        return f"draw_{len(self.steps)}"

    def __call__(self, origin: Any) -> Any:
        if self.make is not None and self.setter is not None:
            generator = self.make()
            self.setter(generator, origin)
            return [step.take(generator) for step in self.steps][-1]
        generator = origin
        read, write = STATES[type(generator)]
        before = read(generator)
        try:
            return [step.take(generator) for step in self.steps][-1]
        finally:
            write(generator, before)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What captured code has done to a generator so far: steps, from the state it had before the call, or from a state that it was given.
    `origin` is the generator or that state, and `source` where it is found. `place` is where the generator has its bits."""

    place: Source
    origin: Any
    source: Source
    steps: tuple[Draw, ...] = ()
    make: Callable[[], Any] | None = None
    setter: Callable[[Any, Any], None] | None = None

    def foretell(self, m: Machine, step: Draw) -> tuple[Any, Source]:
        """What one more step gives, and the place where it is found at each call."""
        foretold = Foretold((*self.steps, step), self.make, self.setter)
        return m.concrete.run(foretold, self.origin), Asked(self.source, foretold)


def drawn_from(m: Machine, generator: Value, what: str) -> Drawn:
    real, source = getattr(generator, "real", None), generator.source
    if type(real) not in STATES or source is None:
        raise Break(what, f"{generator.describe()} is no generator from outside")
    bits = bits_of(real)
    if id(bits) not in m.effects.drawn:
        place = source if bits is real else Asked(source, bits_of)
        others = tuple(other.place for other in m.effects.drawn.values())
        if others:
            m.guards.add(place, NotSameAs(others))
        m.effects.drawn[id(bits)] = Drawn(place, real, source)
    found: Drawn = m.effects.drawn[id(bits)]
    if found.make is None and not found.steps:  # it was met as the bits of a generator, which do not draw
        return replace(found, origin=real, source=source)
    return found


def draw(m: Machine, generator: Value, name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    what = f"a draw by {name!r}"
    plain = tuple(m.concrete.plain(a, what) for a in args)
    step = Draw(name, plain, {key: m.concrete.plain(a, what) for key, a in kwargs.items()})
    if isinstance(generator, SeededValue) and generator.source is None:
        return _known(m, generator.draw(m, step.take))
    before = drawn_from(m, generator, what)
    found = number(m, *before.foretell(m, step), what)
    m.effects.drawn[id(bits_of(generator.real))] = replace(before, steps=(*before.steps, step))  # type: ignore[attr-defined]  # `drawn_from` has looked
    m.effects.defer(BuiltinValue(Draw.take), [Constant(step), generator], {})
    return found


def number(m: Machine, real: Any, source: Source, what: str) -> Value:
    """What was drawn, as something from outside that is another one each time. A list has as many elements each time."""
    if type(real) is float:
        m.guards.add(source, TypeIs(float))
        return VaryingFloat(m, real, source)
    if type(real) is int and -(2**63) <= real < 2**63:
        m.guards.add(source, InRange(-(2**63), 2**63 - 1))
        return SymbolicValue(m.sizes.symbol_for_int(m, real, source))
    if type(real) is list:
        return ListValue([number(m, element, Item(source, index), what) for index, element in enumerate(real)])
    if real is None or isinstance(real, (numpy.ndarray, numpy.generic)):
        return m.wrap.at(real, source)
    raise Break(what, f"it gives a {type(real).__name__}")


def _register(cls: type, name: str) -> None:
    def drawn(m: Machine, generator: Value, *args: Value, **kwargs: Value) -> Value:
        return draw(m, generator, name, args, kwargs)

    method = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
    handles(method)(drawn)
    on_object(method)(drawn)


for _cls, _names in DRAWS.items():
    for _name in _names.split():
        _register(_cls, _name)


@handles(random.Random.shuffle)
@on_object(random.Random.shuffle)
def shuffle(m: Machine, generator: Value, items: Value) -> Value:
    """Of a list of numbers: the numbers are drawn. A list of other things would be code for each order."""
    if not isinstance(items, ListValue):
        raise Break("a draw by 'shuffle'", f"{items.describe()} is no list that capture knows")
    found = draw(m, generator, SHUFFLE, (items,), {})
    items.set_item(m, SliceValue(Constant(None), Constant(None), Constant(None)), found)
    return Constant(None)


MAKERS = (random.Random, numpy.random.RandomState, numpy.random.default_rng)
"""What makes a generator of a seed."""


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """A generator that captured code makes: another one in each call."""

    make: Callable[[], Any]

    @property
    def __name__(self) -> str:
        return "a_generator"

    def __call__(self, _: object) -> Any:
        return self.make()


def made_anew(m: Machine, make: Callable[[], Any]) -> Value:
    """Without a seed, what it draws is another number each time: it is made before the captured code, and is like one from outside."""
    fresh = Fresh(make)
    return m.wrap.at(fresh(None), Asked(Fixed(random, "random"), fresh))


def _made_inside(maker: Any) -> None:
    @handles(maker)
    def made(m: Machine, *seed: Value) -> Value:
        given = [m.concrete.constant(value, f"{maker.__name__}()") for value in seed]
        if not given or given[0] is None:
            return made_anew(m, maker)
        return SeededValue(m.concrete.run(maker, *given), functools.partial(maker, 0))


for _maker in MAKERS:
    _made_inside(_maker)


def _known(m: Machine, real: Any) -> Value:
    """What a generator with a known seed gives: the same each time."""
    if isinstance(real, numpy.ndarray):
        if real.dtype not in DTYPES:
            raise Break("a draw", f"it gives an array of {real.dtype}")
        copied = m.record.method(m.wrap.object(torch.from_numpy(real)), "clone", [], {})
        assert isinstance(copied, TensorValue)
        return ArrayValue(copied)
    return ListValue([_known(m, element) for element in real]) if type(real) is list else m.wrap.constant(real)


@handles(numpy.random.seed)
def seed(m: Machine, *args: Value, **kwargs: Value) -> Value:
    """It seeds the generator that numpy's functions draw from."""
    if numpy.random.mtrand._rand is not _LEGACY:
        raise Break(f"a call of {describe(numpy.random.seed)}", "numpy's own generator was replaced")
    return draw(m, m.wrap.object(_LEGACY), "seed", args, kwargs)
