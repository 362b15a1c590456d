"""Iteration: iter, next, zip, map, and the parts of itertools that are written in C."""

from __future__ import annotations

import itertools

from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import iteration
from stoker.capture.values.constant import Constant, ConstantIterator
from stoker.capture.values.iterator import (
    CallIterator,
    CountIterator,
    EnumerateIterator,
    FilterIterator,
    MapIterator,
    PolyfilledIterator,
    RepeatIterator,
    ZipIterator,
)
from stoker.capture.values.mapping import DictValue, DictView
from stoker.capture.values.rounds import RoundsIterator, Rows, SizedRange, iterate
from stoker.capture.values.sequence import ListValue, SequenceIterator, SequenceValue
from stoker.capture.values.value import Exhausted, Value


@handles(iter)
def iter_(m: Machine, value: Value, sentinel: Value | None = None) -> Value:
    return m.operators.iterate(value) if sentinel is None else CallIterator(value, sentinel)


@handles(next)
def next_(m: Machine, iterator: Value, *default: Value) -> Value:
    try:
        return iterator.next(m)
    except Exhausted:
        if default:
            return default[0]
        m.exceptions.stop_iteration(iterator)


@handles(zip)
def zip_(m: Machine, *parts: Value, strict: Value = Constant(False)) -> Value:  # noqa: B008
    return ZipIterator([iterate(m, part) for part in parts], strict.truth(m))


@handles(enumerate)
def enumerate_(m: Machine, part: Value, start: Value = Constant(0)) -> Value:  # noqa: B008
    return EnumerateIterator(iterate(m, part), start)


@handles(map)
def map_(m: Machine, function: Value, *parts: Value) -> Value:
    return MapIterator(function, [m.operators.iterate(part) for part in parts])


@handles(filter)
def filter_(m: Machine, function: Value, part: Value) -> Value:
    return FilterIterator(function, m.operators.iterate(part))


@handles(reversed)
def reversed_(m: Machine, value: Value) -> Value:
    if m.attributes.class_lookup(value.python_type(), "__reversed__") is None:
        m.exceptions.raise_(TypeError, f"'{value.python_type().__name__}' object is not reversible")
    found = (
        m.attributes.special_method(value, "__reversed__") if not isinstance(value, (SequenceValue, Constant)) else None
    )
    if isinstance(value, (SizedRange, Rows)):
        return RoundsIterator.backwards(value)
    storage = value.stored()
    if isinstance(storage, SequenceValue):
        return SequenceIterator(storage, -1)
    if isinstance(storage, Constant):
        backwards = m.concrete.run(reversed, storage.value)
        return ConstantIterator(backwards, type(backwards))
    if isinstance(storage, (DictValue, DictView)):
        return SequenceIterator(ListValue(storage.items_list(m)), -1)
    if found is not None:
        return found.call(m, [], {})
    if (
        m.attributes.special_method(value, "__len__") is None
        or m.attributes.special_method(value, "__getitem__") is None
    ):
        value.unsupported("reversed()")
    made = m.wrap.object(iteration.backwards).call(m, [value, m.wrap.object(len).call(m, [value], {})], {})
    return PolyfilledIterator(reversed, made, [value])


@handles(itertools.count)
def count_(m: Machine, start: Value = Constant(0), step: Value = Constant(1)) -> Value:  # noqa: B008
    for number in (start, step):
        if isinstance(number, Constant):
            m.concrete.run(itertools.count, number.value)  # raises, where it is no number
    return CountIterator(start, step)


@handles(itertools.repeat)
def repeat_(m: Machine, value: Value, times: Value | None = None) -> Value:
    return RepeatIterator(value, m.concrete.integer(times) if times is not None else None)
