"""Iterators of the built-in kinds, and generators (a suspended symbolic frame)."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.suspend import emit_generator
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Exhausted, Value
from stoker.errors import Raised

if TYPE_CHECKING:
    from stoker.capture.frame import Frame


class IteratorValue(Value):
    """An iterator whose elements are made on demand."""

    kind: type

    def python_type(self) -> type:
        return self.kind

    def iterator(self, m: Machine) -> Value:
        self.require(m, "__iter__", "'{name}' object is not iterable")  # a coroutine is advanced in the same way
        return self

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)


class ZipIterator(IteratorValue):
    kind = zip

    def __init__(self, parts: list[Value], strict: bool = False) -> None:
        self.parts, self.strict = parts, strict

    def next(self, m: Machine) -> Value:
        if not self.parts:
            raise Exhausted
        elements: list[Value] = []
        for index, part in enumerate(self.parts):
            try:
                elements.append(part.next(m))
            except Exhausted:
                if self.strict:
                    self.check_lengths(m, index)
                raise
        return TupleValue(elements)

    def check_lengths(self, m: Machine, index: int) -> None:
        plural = "s 1-" if index > 1 else " "
        if index > 0:
            m.exceptions.raise_(ValueError, f"zip() argument {index + 1} is shorter than argument{plural}{index}")
        for later, part in enumerate(self.parts[1:], start=1):
            try:
                part.next(m)
            except Exhausted:
                continue
            plural = "s 1-" if later > 1 else " "
            m.exceptions.raise_(ValueError, f"zip() argument {later + 1} is longer than argument{plural}{later}")

    def emit(self, e: Emitting) -> None:
        e.call_function(zip, self.parts, {"strict": Constant(True)} if self.strict else {})


class EnumerateIterator(IteratorValue):
    kind = enumerate

    def __init__(self, part: Value, count: Value) -> None:
        self.part, self.count = part, count

    def next(self, m: Machine) -> Value:
        element = self.part.next(m)
        count, self.count = self.count, m.operators.binary("+", self.count, Constant(1))
        return TupleValue([count, element])

    def emit(self, e: Emitting) -> None:
        e.call_function(enumerate, [self.part, self.count])


class MapIterator(IteratorValue):
    kind = map

    def __init__(self, function: Value, parts: list[Value]) -> None:
        self.function, self.parts = function, parts

    def next(self, m: Machine) -> Value:
        return self.function.call(m, [part.next(m) for part in self.parts], {})

    def emit(self, e: Emitting) -> None:
        e.call_function(map, [self.function, *self.parts])


class FilterIterator(IteratorValue):
    kind = filter

    def __init__(self, function: Value, part: Value) -> None:
        self.function, self.part = function, part

    def next(self, m: Machine) -> Value:
        while True:
            element = self.part.next(m)
            keeps_all = isinstance(self.function, Constant) and self.function.value is None
            if (element if keeps_all else self.function.call(m, [element], {})).truth(m):
                return element

    def emit(self, e: Emitting) -> None:
        e.call_function(filter, [self.function, self.part])


class CountIterator(IteratorValue):
    kind = itertools.count

    def __init__(self, position: Value, step: Value) -> None:
        self.position, self.step = position, step

    def next(self, m: Machine) -> Value:
        found, self.position = self.position, m.operators.binary("+", self.position, self.step)
        return found

    def emit(self, e: Emitting) -> None:
        e.call_function(itertools.count, [self.position, self.step])


class RepeatIterator(IteratorValue):
    kind = itertools.repeat

    def __init__(self, element: Value, times: int | None) -> None:
        self.element, self.times = element, times

    def next(self, m: Machine) -> Value:
        if self.times is not None:
            if self.times <= 0:
                raise Exhausted
            self.times -= 1
        return self.element

    def emit(self, e: Emitting) -> None:
        e.call_function(itertools.repeat, [self.element, *([Constant(self.times)] if self.times is not None else [])])


class CallIterator(IteratorValue):
    """`iter(callable, sentinel)`."""

    kind = type(iter(int, 1))

    def __init__(self, function: Value, sentinel: Value) -> None:
        self.function, self.sentinel, self.done = function, sentinel, False

    def next(self, m: Machine) -> Value:
        if self.done:
            raise Exhausted
        try:
            found = self.function.call(m, [], {})
        except Raised as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                self.done = True
                raise Exhausted from None
            raise
        self.done = self.done or found is self.sentinel or m.operators.equal(found, self.sentinel)
        if self.done:  # perhaps by the function itself, in the call
            raise Exhausted
        return found

    def emit(self, e: Emitting) -> None:
        e.call_function(iter, [TupleValue([])] if self.done else [self.function, self.sentinel])


class PolyfilledIterator(IteratorValue):
    """An iterator written in C whose elements come from a generator of the polyfill."""

    def __init__(
        self,
        maker: Callable[..., Any],
        generator: Value,
        args: list[Value],
        kind: type | None = None,
        keywords: dict[str, Value] | None = None,
    ) -> None:
        assert isinstance(generator, GeneratorValue)
        self.maker, self.generator, self.args, self.keywords = maker, generator, args, keywords or {}
        self.kind = kind or maker  # type: ignore[assignment]  # iterators are made by calling their class

    def next(self, m: Machine) -> Value:
        return self.generator.next(m)

    def emit(self, e: Emitting) -> None:
        """Made anew if it has not begun; what is left of it, behind an iterator written in C, if it has."""
        if self.generator.started or self.args == [self.generator]:
            e.call_function(itertools.chain, [self.generator])
        else:
            e.call_function(self.maker, self.args, self.keywords)


class PooledIterator(IteratorValue):
    """product, permutations, combinations: the real iterator, over Values."""

    def __init__(self, kind: type, rows: Iterator[tuple[Value, ...]]) -> None:
        self.kind, self.rows = kind, rows

    def next(self, m: Machine) -> Value:
        try:
            return TupleValue(list(next(self.rows)))
        except StopIteration:
            raise Exhausted from None

    def emit(self, e: Emitting) -> None:
        rest = list(self.rows)
        self.rows = iter(rest)
        e.call_function(itertools.chain, [TupleValue([TupleValue(list(row)) for row in rest])])


class GeneratorValue(IteratorValue):
    """A generator: its frame, suspended. Running it is running the frame until it yields."""

    kind = types.GeneratorType

    def __init__(self, frame: Frame, abandoned: list[Frame]) -> None:
        self.frame, self.abandoned = frame, abandoned
        self.started = self.finished = self.running = False
        self.result: Value = Constant(None)

    def __del__(self) -> None:
        """Values live as long as the objects they stand for: CPython would close this generator here."""
        if (
            self.started
            and not self.finished
            and not self.running
            and self.frame.instructions[self.frame.position - 1].handler
        ):
            self.abandoned.append(self.frame)

    def resume(self, m: Machine, sent: Value | None, raised: Raised | None = None) -> Value:
        """Run to the next yield; raises Exhausted (with `result` set) when the generator returns."""
        if self.finished:
            if raised is not None:
                raise raised
            raise Exhausted
        if self.running:
            m.exceptions.raise_(ValueError, "generator already executing")
        self.running = True
        try:
            started, self.started = self.started, True
            yielded, result = m.calls.resume(self.frame, started, sent, raised)
        except Raised as error:
            self.finish()
            replaced = m.exceptions.of_generator(error.value)
            if replaced is not error.value:
                raise Raised(replaced) from error
            raise
        finally:
            self.running = False
        if yielded is None:
            self.result = result if result is not None else Constant(None)
            self.finish()
            raise Exhausted
        return yielded

    def finish(self) -> None:
        self.finished = True
        self.frame.clear()

    def next(self, m: Machine) -> Value:
        return self.resume(m, None)

    def take_result(self) -> Value | None:
        """What the generator returned, the first time it is asked for; None for None."""
        result, self.result = self.result, Constant(None)
        return None if _is_none(result) else result

    def method_send(self, m: Machine, value: Value) -> Value:
        if not self.started and not (isinstance(value, Constant) and value.value is None):
            m.exceptions.raise_(TypeError, "can't send non-None value to a just-started generator")
        try:
            return self.resume(m, value)
        except Exhausted:
            m.exceptions.stop_iteration(self)

    def method_throw(self, m: Machine, kind: Value, value: Value | None = None, trace: Value | None = None) -> Value:
        error = m.exceptions.as_exception(kind if value is None or _is_none(value) else value)
        try:
            return self.resume(m, None, Raised(error))
        except Exhausted:
            m.exceptions.stop_iteration(self)

    def method_close(self, m: Machine) -> Value:
        if self.started and not self.finished:
            try:
                self.resume(m, None, Raised(m.exceptions.make(GeneratorExit)))
            except Exhausted:
                return Constant(None)
            except Raised as error:
                if not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                    raise
                return Constant(None)
            m.exceptions.raise_(RuntimeError, "generator ignored GeneratorExit")
        self.finish()
        return Constant(None)

    def method___next__(self, m: Machine) -> Value:
        return self.method_send(m, Constant(None))

    def emit(self, e: Emitting) -> None:
        emit_generator(e, self)


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None
