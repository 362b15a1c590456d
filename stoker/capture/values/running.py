"""Iterators that existed before the call: those whose elements are known, and those that only CPython can advance.

An iterator of a list, a range, `enumerate` or `itertools.count` tells by `__reduce__` what it goes over and where it is; one of a
dictionary or a set, what is left of it. What captured code takes of it is taken again behind the graph, so that it ends where
eager leaves it; of a `map` or a `filter`, from what it goes over, since its function has been called. One that is somewhere else at each call would need code of its own for each place: it is advanced by CPython, at
a break. So a loop that breaks in one round goes on in one graph, and a loop that breaks in each round breaks at its head, too.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any, NoReturn

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.iterator import (
    CountIterator,
    EnumerateIterator,
    FilterIterator,
    IteratorValue,
    MapIterator,
    RepeatIterator,
    ZipIterator,
)
from stoker.capture.values.rounds import goes_over_rounds, is_left_by_rounds, stop_at_head
from stoker.capture.values.sequence import SequenceIterator, SequenceValue
from stoker.capture.values.value import Exhausted, Lazy, Value
from stoker.errors import Break, StepBreak
from stoker.guard.source import Asked, Local, Source, root_of


class RunningIterator(IteratorValue):
    """An iterator that existed before the call. Where it has a model, captured code advances that in its place; otherwise advancing
    it is done by CPython, at a graph break.

    The model of one that a break has kept for a loop is made when it is advanced: on the way there the loop passes other resume
    functions, which take the iterator as it comes."""

    written_last = True

    def __init__(self, real: Any, source: Source, model: Value | None = None) -> None:
        self.real, self.place, self.model = real, source, model
        self.source = source
        self.kind = type(real)
        self.taken = self.step = 0
        self.ended = False

    def next(self, m: Machine) -> Value:
        if is_left_by_rounds(self.place):
            stop_at_head(self.describe())
        if self.model is None and is_kept_by_a_break(self.place):
            self.model = _model(m, self.real, self.place)
        if self.model is None:
            raise Break(
                "an iterator from outside",
                f"{self.describe()} is a running {self.kind.__name__}; its next element is known only when it runs",
                "pass a list, or create the iterator inside the compiled function",
            )
        m.effects.will_mutate(self)
        self.step = self.step if self.taken else m.step
        return _take(m, self, self.model)

    def refuse_one_round(self, m: Machine) -> None:
        """A loop that a break has left breaks again in its next round: it will in others, and no round is like another."""
        if self.taken == 1 and is_kept_by_a_break(self.place):
            self.stop_before(m, f"the loop over {self.describe()} breaks in each round")

    def stop_before(self, m: Machine, words: str) -> NoReturn:
        """End this graph before the iterator is advanced."""
        reason = Break("an iterator from outside", words)
        m.blame(reason)
        raise StepBreak(self.step, reason)

    def write_back(self, e: Emitting) -> None:
        for container in (*_sequences(self.model), *_containers(e.m, self.real)):
            if id(container) in e.m.effects.mutated:
                self.stop_before(e.m, f"{container.describe()} is changed while {self.describe()} goes over it")
        if _goes_on_counting(self):
            self.stop_before(
                e.m, f"{self.describe()} counts what a function of the program gives, and was not at its end"
            )
        for iterator, taken in _advanced(self, self.model, self.taken):
            e.call_function(_advance, [iterator, Constant(taken)])
            e.pop()


class InnerIterator(IteratorValue):
    """An iterator inside another: `running` is what captured code meets when it asks for it by itself."""

    def __init__(self, running: RunningIterator, model: Value) -> None:
        self.running, self.model = running, model
        self.kind = running.kind
        self.taken = 0
        self.ended = False

    def next(self, m: Machine) -> Value:
        return _take(m, self, self.model)


def _take(m: Machine, iterator: RunningIterator | InnerIterator, model: Value) -> Value:
    iterator.taken += 1
    try:
        return model.next(m)
    except Exhausted:
        iterator.ended = True
        raise


def _goes_on_counting(iterator: RunningIterator | InnerIterator) -> bool:
    """Is there an enumerate over what a function gives, which did not come to its end? Only calling the function moves its count."""
    parts = _parts(iterator.model)
    counts = isinstance(iterator.model, EnumerateIterator) and bool(parts) and not iterator.ended
    return counts or any(isinstance(part, InnerIterator) and _goes_on_counting(part) for part in parts)


def _advanced(iterator: Value, model: Value | None, taken: int) -> Iterator[tuple[Value, int]]:
    """What to take again, and how often. The function of a map or a filter is not called for it, so what they go over is advanced
    beneath them; a map, a filter and a zip keep nothing of their own, and an enumerate at its end nothing that anybody sees."""
    for part in _parts(model):
        assert isinstance(part, InnerIterator)
        yield from _advanced(part.running, part.model, part.taken)
    if not _parts(model):
        yield iterator, taken


def _parts(model: Value | None) -> list[Value]:
    match model:
        case ZipIterator() | MapIterator():
            return model.parts
        case FilterIterator():
            return [model.part]
        case EnumerateIterator(part=InnerIterator() as part) if _calls_back(part):
            return [part]
    return []


def _calls_back(part: InnerIterator) -> bool:
    """Does an iterator call a function of the program when it is advanced?"""
    return isinstance(part.model, (MapIterator, FilterIterator)) or any(
        isinstance(inner, InnerIterator) and _calls_back(inner) for inner in _parts(part.model)
    )


def _sequences(model: Value | None) -> list[Value]:
    match model:
        case InnerIterator():
            return _sequences(model.model)
        case SequenceIterator():
            return [model.sequence]
        case EnumerateIterator() | FilterIterator():
            return _sequences(model.part)
        case ZipIterator() | MapIterator():
            return [sequence for part in model.parts for sequence in _sequences(part)]
    return []


def _containers(m: Machine, iterator: Any) -> list[Value]:
    """The dictionaries and sets that an iterator, or one inside it, goes over, as far as captured code knows them."""
    if type(iterator) in MODELS and MODELS[type(iterator)] is not _left_of_container:
        inside = [part for part in _reduced(iterator)[1] if type(part) in MODELS]
        return [found for part in inside for found in _containers(m, part)]
    held = (m.wrap.known.get(id(container)) for container in gc.get_referents(iterator))
    return [known[0].stored() for known in held if known is not None]


def _advance(iterator: Any, times: int) -> None:
    for _ in range(times):
        next(iterator, None)


def known_iterator(m: Machine, real: Any, source: Source) -> Value | None:
    """The iterator with a model of it, or None if it has none."""
    model = _model(m, real, source)
    return RunningIterator(real, source, model) if model is not None else None


def is_kept_by_a_break(source: Source) -> bool:
    """Is it an iterator of a loop that a break has left? It is somewhere else in each round."""
    return root_of(source).text.startswith("intermediate value ")


def is_iterator_by_rounds(value: Value) -> bool:
    """Is it the iterator of a loop that CPython advances? One from outside is, if it was somewhere else at another call."""
    known = value.forced if type(value) is Lazy and value.forced is not None else value
    if not isinstance(known, RunningIterator) or is_left_by_rounds(known.place) or is_kept_by_a_break(known.place):
        return goes_over_rounds(known) or is_left_by_rounds(known.source)
    return known.model is None and known.kind in MODELS


def _model(m: Machine, real: Any, source: Source) -> Value | None:
    make = MODELS.get(type(real))
    return make(m, real, source) if make is not None else None


def _sequence(m: Machine, real: Any, source: Source) -> Value | None:
    sequence, position = _iterated(real), _position(real)
    where = (
        _position if type(sequence) in (list, tuple) and not _fills_a_comprehension(source, sequence) else length_hint
    )
    if _is_elsewhere(m, Asked(source, where), where(real)):
        return None
    m.guards.ask(source, real, _position, f"is at position {position}")
    value = m.wrap.at(sequence, Asked(source, _iterated))
    backward = type(real) in _REVERSED
    if isinstance(value, Constant):
        left = sequence[position::-1] if backward else sequence[position:]
        return m.operators.iterate(Constant(left if position >= 0 else ()))
    if type(sequence) not in (list, tuple) or not isinstance(value, SequenceValue):
        return None
    made = SequenceIterator(value, -1 if backward else 1)
    made.position, made.done = position, position < 0
    return made


def _fills_a_comprehension(source: Source, sequence: Any) -> bool:
    """Are they tensors that a comprehension goes over? It starts anew in each call: how many there are is what varies."""
    root = root_of(source)
    return isinstance(root, Local) and root.name == ".0" and any(isinstance(part, torch.Tensor) for part in sequence)


def _is_elsewhere(m: Machine, place: Source, position: int) -> bool:
    """Was an iterator seen in another place before? One of a loop that breaks in each round is, whatever sizes may do."""
    if is_kept_by_a_break(place):
        return m.sizes.was_elsewhere(place, position)
    return m.sizes.int_is_dynamic(place, position)


def _reduced(iterator: Any) -> Any:
    if type(iterator).__module__ != itertools.__name__:
        return iterator.__reduce__()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # from 3.12 on
        return iterator.__reduce__()


def _iterated(iterator: Any) -> Any:
    return _reduced(iterator)[1][0]


def _position(iterator: Any) -> int:
    """Where it is; below 0 at its end. (From 3.12 on, an iterator of a range gives the range that is left, and None.)"""
    _, _, *state = _reduced(iterator)
    return (state[0] or 0) if state else -1


def _left_of_container(m: Machine, real: Any, source: Source) -> Value | None:
    left = _left(real)
    if left is None or _is_elsewhere(m, Asked(source, _left), len(left)):
        return None
    value = m.wrap.at(left, Asked(source, _left))
    return m.operators.iterate(value) if isinstance(value, (Constant, SequenceValue)) else None


def _left(iterator: Any) -> list[Any] | None:
    """What an iterator of a dictionary or a set has still to give; None if that has changed its size since."""
    try:
        found: list[Any] = _reduced(iterator)[1][0]
    except RuntimeError:
        return None
    return found


def _map(m: Machine, real: Any, source: Source) -> Value | None:
    _, parts = m.guards.ask(source, real, _shape, "has as many parts")
    models = [_inner(m, real, source, index) for index in range(1, parts)]
    known: list[Value] = [model for model in models if model is not None]
    return MapIterator(_part(m, real, source, 0), known) if len(known) == len(models) else None


def _filter(m: Machine, real: Any, source: Source) -> Value | None:
    part = _inner(m, real, source, 1)
    return FilterIterator(_part(m, real, source, 0), part) if part is not None else None


def _enumerate(m: Machine, real: Any, source: Source) -> Value | None:
    part = _inner(m, real, source, 0)
    return EnumerateIterator(part, _part(m, real, source, 1)) if part is not None else None


def _zip(m: Machine, real: Any, source: Source) -> Value | None:
    _, parts, *strict = m.guards.ask(source, real, _shape, "has as many parts")
    models = [_inner(m, real, source, index) for index in range(parts)]
    known: list[Value] = [model for model in models if model is not None]
    return ZipIterator(known, bool(strict)) if len(known) == len(models) else None


def _count(m: Machine, real: Any, source: Source) -> Value | None:
    _, parts = m.guards.ask(source, real, _shape, "has as many parts")
    if is_kept_by_a_break(source) and _is_elsewhere(m, Asked(source, _argument(0)), _argument(0)(real)):
        return None
    step = _part(m, real, source, 1) if parts > 1 else Constant(1)
    return CountIterator(_part(m, real, source, 0), step)


def _repeat(m: Machine, real: Any, source: Source) -> Value | None:
    _, parts = m.guards.ask(source, real, _shape, "has as many parts")
    times = _reduced(real)[1][1] if parts > 1 else None
    if times is not None and _is_elsewhere(m, Asked(source, _argument(1)), times):
        return None
    return RepeatIterator(_part(m, real, source, 0), _part(m, real, source, 1).constant() if parts > 1 else None)


def _shape(iterator: Any) -> tuple[Any, ...]:
    maker, args, *state = _reduced(iterator)
    return maker, len(args), *state


@functools.cache
def _argument(index: int) -> Callable[[Any], Any]:
    def part(iterator: Any) -> Any:
        return _reduced(iterator)[1][index]

    part.__name__ = f"part_{index}"
    return part


def _part(m: Machine, real: Any, source: Source, index: int) -> Value:
    question = _argument(index)
    return m.wrap.at(question(real), Asked(source, question))


def _inner(m: Machine, real: Any, source: Source, index: int) -> InnerIterator | None:
    """The model of an iterator inside another, if nobody else has looked at it; whoever looks at it later meets a running one."""
    question = _argument(index)
    inner, place = question(real), Asked(source, question)
    if id(inner) in m.wrap.known:
        return None
    model = _model(m, inner, place)
    running = RunningIterator(inner, place)
    m.wrap.known[id(inner)] = (running, inner)
    return InnerIterator(running, model) if model is not None else None


_REVERSED: tuple[type, ...] = (type(reversed([])), reversed)
_SEQUENCES: tuple[Any, ...] = ([], (), "", "\u00e9", b"", range(0), range(2**70))
_EMPTY, _ORDERED = dict[Any, Any](), collections.OrderedDict[Any, Any]()
_CONTAINERS: tuple[Any, ...] = (_EMPTY, _EMPTY.values(), _EMPTY.items(), _ORDERED, set())
MODELS: dict[type, Callable[[Machine, Any, Source], Value | None]] = {
    **{type(iter(made)): _sequence for made in _SEQUENCES},
    **dict.fromkeys(_REVERSED, _sequence),
    **{type(iter(made)): _left_of_container for made in _CONTAINERS},
    **{type(reversed(made)): _left_of_container for made in (_EMPTY, _EMPTY.values(), _EMPTY.items())},
    map: _map,
    filter: _filter,
    enumerate: _enumerate,
    zip: _zip,
    itertools.count: _count,
    itertools.repeat: _repeat,
}
