"""Iterators that existed before the call: those whose elements are known, and those that only CPython can advance.

An iterator of a list, a range, `enumerate` or `itertools.count` tells by `__reduce__` what it goes over and where it is. What
captured code takes of it is taken again behind the graph, so that it ends where eager leaves it. One that is somewhere else
at each call would need code of its own for each place: it is advanced by CPython, at a break.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.iterator import CountIterator, EnumerateIterator, IteratorValue, RepeatIterator, ZipIterator
from stoker.capture.values.sequence import SequenceIterator, SequenceValue
from stoker.capture.values.value import Value
from stoker.errors import Break, StepBreak
from stoker.guard.source import Asked, Source, root_of

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


class RunningIterator(Value):
    """An iterator that existed before the call: advancing it is done by CPython, at a graph break."""

    def __init__(self, real: Any, source: Source) -> None:
        self.real, self.source = real, source

    def python_type(self) -> type:
        return type(self.real)

    def iterator(self, m: Machine) -> Value:
        return self

    def truth(self, m: Machine) -> bool:
        return True

    def next(self, m: Machine) -> Value:
        raise Break(
            "an iterator from outside",
            f"{self.describe()} is a running {type(self.real).__name__}; its next element is known only when it runs",
            "pass a list, or create the iterator inside the compiled function",
        )

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)


class KnownIterator(IteratorValue):
    """An iterator that existed before the call, and a model of it that captured code advances in its place."""

    written_last = True

    def __init__(self, real: Any, source: Source, model: Value) -> None:
        self.real, self.source, self.model = real, source, model
        self.kind = type(real)
        self.taken = self.step = 0

    def next(self, m: Machine) -> Value:
        m.effects.will_mutate(self)
        self.step = self.step if self.taken else m.step
        self.taken += 1
        return self.model.next(m)

    def write_back(self, e: Emitter) -> None:
        for sequence in _sequences(self.model):
            if id(sequence) in e.m.effects.mutated:
                words = f"{sequence.describe()} is changed while {self.describe()} goes over it"
                reason = Break("an iterator from outside", words)
                e.m.blame(reason)
                raise StepBreak(self.step, reason)
        e.call_function(_advance, [self, Constant(self.taken)])
        e.pop()


def _sequences(model: Value) -> list[Value]:
    match model:
        case SequenceIterator():
            return [model.sequence]
        case EnumerateIterator():
            return _sequences(model.part)
        case ZipIterator():
            return [sequence for part in model.parts for sequence in _sequences(part)]
    return []


def _advance(iterator: Any, times: int) -> None:
    for _ in range(times):
        next(iterator, None)


def known_iterator(m: Machine, real: Any, source: Source) -> Value | None:
    """The iterator with a model of it, or None if it has none."""
    model = _model(m, real, source)
    return KnownIterator(real, source, model) if model is not None else None


def is_kept_by_a_break(source: Source) -> bool:
    """Is it an iterator of a loop that a break has left? It is somewhere else in each round."""
    return root_of(source).text.startswith("intermediate value ")


def _model(m: Machine, real: Any, source: Source) -> Value | None:
    make = MODELS.get(type(real))
    return make(m, real, source) if make is not None else None


def _sequence(m: Machine, real: Any, source: Source) -> Value | None:
    sequence, position = _iterated(real), _position(real)
    if m.sizes.int_is_dynamic(Asked(source, _position), position):
        return None
    m.guards.ask(source, real, _position, f"is at position {position}")
    value = m.wrap.at(sequence, Asked(source, _iterated))
    if isinstance(value, Constant):
        return m.operators.iterate(Constant(sequence[position:] if position >= 0 else ()))
    if type(sequence) not in (list, tuple) or not isinstance(value, SequenceValue):
        return None
    made = SequenceIterator(value, -1 if type(real) is type(reversed([])) else 1)
    made.position, made.done = position, position < 0
    return made


def _iterated(iterator: Any) -> Any:
    return iterator.__reduce__()[1][0]


def _position(iterator: Any) -> int:
    """Where it is; below 0 at its end."""
    _, _, *state = iterator.__reduce__()
    return state[0] if state else -1


def _enumerate(m: Machine, real: Any, source: Source) -> Value | None:
    part = _inner(m, real, source, 0)
    return EnumerateIterator(part, _part(m, real, source, 1)) if part is not None else None


def _zip(m: Machine, real: Any, source: Source) -> Value | None:
    _, parts, *strict = m.guards.ask(source, real, _shape, "has as many parts")
    models = [_inner(m, real, source, index) for index in range(parts)]
    known = [model for model in models if model is not None]
    return ZipIterator(known, bool(strict)) if len(known) == len(models) else None


def _count(m: Machine, real: Any, source: Source) -> Value:
    _, parts = m.guards.ask(source, real, _shape, "has as many parts")
    step = _part(m, real, source, 1) if parts > 1 else Constant(1)
    return CountIterator(_part(m, real, source, 0), step)


def _repeat(m: Machine, real: Any, source: Source) -> Value | None:
    _, parts = m.guards.ask(source, real, _shape, "has as many parts")
    times = real.__reduce__()[1][1] if parts > 1 else None
    if times is not None and m.sizes.int_is_dynamic(Asked(source, _argument(1)), times):
        return None
    return RepeatIterator(_part(m, real, source, 0), _part(m, real, source, 1).constant() if parts > 1 else None)


def _shape(iterator: Any) -> tuple[Any, ...]:
    maker, args, *state = iterator.__reduce__()
    return maker, len(args), *state


@functools.cache
def _argument(index: int) -> Callable[[Any], Any]:
    def part(iterator: Any) -> Any:
        return iterator.__reduce__()[1][index]

    part.__name__ = f"part_{index}"
    return part


def _part(m: Machine, real: Any, source: Source, index: int) -> Value:
    question = _argument(index)
    return m.wrap.at(question(real), Asked(source, question))


def _inner(m: Machine, real: Any, source: Source, index: int) -> Value | None:
    """The model of an iterator inside another, if nobody else has looked at it; whoever looks at it later meets a running one."""
    question = _argument(index)
    inner, place = question(real), Asked(source, question)
    if id(inner) in m.wrap.known:
        return None
    model = _model(m, inner, place)
    m.wrap.known[id(inner)] = (RunningIterator(inner, place), inner)
    return model


_SEQUENCES: tuple[Any, ...] = ([], (), "", "\u00e9", b"", range(0), range(2**70))
MODELS: dict[type, Callable[[Machine, Any, Source], Value | None]] = {
    **{type(iter(made)): _sequence for made in _SEQUENCES},
    type(reversed([])): _sequence,
    enumerate: _enumerate,
    zip: _zip,
    itertools.count: _count,
    itertools.repeat: _repeat,
}
