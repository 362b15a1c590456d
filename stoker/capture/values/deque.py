"""collections.deque: a list that is cheap at both ends, perhaps of bounded length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue, SequenceValue, TupleValue, take_each
from stoker.capture.values.value import Exhausted, Value
from stoker.guard.source import Source


class DequeValue(ListValue):
    """Shares a list's element access and in-place changes; what runs over `maxlen` falls off the other end."""

    kind_name = "deque"

    def __init__(self, elements: list[Value], maxlen: int | None = None, source: Source | None = None) -> None:
        super().__init__(elements, source)
        self.maxlen = maxlen
        self.state = 0  # changes with each element that comes or goes
        self.trim(left=True)

    def python_type(self) -> type:
        return deque

    def trim(self, *, left: bool) -> None:
        if self.maxlen is not None and len(self._elements) > self.maxlen:
            extra = len(self._elements) - self.maxlen
            del self._elements[slice(0, extra) if left else slice(self.maxlen, None)]

    def attribute(self, m: Machine, name: str) -> Value:
        return Constant(self.maxlen) if name == "maxlen" else m.attributes.builtin(self, name)

    def item(self, m: Machine, key: Value) -> Value:
        return self.element(m, self._place(m, key))

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        super().set_item(m, Constant(self._place(m, key)), value)

    def delete_item(self, m: Machine, key: Value) -> None:
        super().delete_item(m, Constant(self._place(m, key)))
        self.state += 1

    def _place(self, m: Machine, key: Value) -> int:
        index = m.concrete.index(key)
        if not isinstance(index, int):
            m.exceptions.raise_(TypeError, f"sequence index must be integer, not '{key.python_type().__name__}'")
        if not -len(self._elements) <= index < len(self._elements):
            m.exceptions.raise_(IndexError, "deque index out of range")
        return index

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        return SequenceValue.compare(self, m, operator, other) if isinstance(other, DequeValue) else None

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator == "+=" and not reflected:
            self.method_extend(m, other)
            return self
        if operator == "+" and isinstance(other, DequeValue) and not reflected:
            return DequeValue([*self.elements(m), *other.elements(m)], self.maxlen)
        if operator in ("*", "*=") and hasattr(other.python_type(), "__index__"):
            repeated = self.elements(m) * m.concrete.integer(other)
            return self._replaced(m, repeated) if operator == "*=" else DequeValue(repeated, self.maxlen)
        return None

    def _replaced(self, m: Machine, elements: list[Value]) -> Value:
        m.effects.will_mutate(self)
        self.state += 1
        self._elements[:] = elements
        self.trim(left=True)
        return self

    def iterator(self, m: Machine) -> Value:
        return DequeIterator(self)

    def method_append(self, m: Machine, item: Value) -> Value:
        super().method_append(m, item)
        self.state += 1
        self.trim(left=True)
        return Constant(None)

    def method_appendleft(self, m: Machine, item: Value) -> Value:
        m.effects.will_mutate(self)
        self.state += 1
        self._elements.insert(0, item)
        self.trim(left=False)
        return Constant(None)

    def method_extend(self, m: Machine, items: Value) -> Value:
        take_each(m, self._other(m, items), lambda item: self.method_append(m, item))
        return Constant(None)

    def method_extendleft(self, m: Machine, items: Value) -> Value:
        take_each(m, self._other(m, items), lambda item: self.method_appendleft(m, item))
        return Constant(None)

    def _other(self, m: Machine, items: Value) -> Value:
        """A deque that is extended by itself takes what it holds at the start."""
        return TupleValue(list(self.elements(m))) if items is self else items

    def method_clear(self, m: Machine) -> Value:
        self.state += 1
        return super().method_clear(m)

    def method_insert(self, m: Machine, index: Value, item: Value) -> Value:
        if self.maxlen is not None and len(self._elements) >= self.maxlen:
            m.exceptions.raise_(IndexError, "deque already at its maximum size")
        self.state += 1
        return super().method_insert(m, index, item)

    def method_remove(self, m: Machine, item: Value) -> Value:
        self.state += 1
        index = self.find(m, item)
        if index is None:
            m.exceptions.raise_(ValueError, self.without(m, item))
        m.effects.will_mutate(self)
        del self._elements[index]
        return Constant(None)

    def method_pop(self, m: Machine) -> Value:  # type: ignore[override]  # a deque's own parameters, not a list's
        return self._pop(m, -1)

    def method_popleft(self, m: Machine) -> Value:
        return self._pop(m, 0)

    def _pop(self, m: Machine, index: int) -> Value:
        if not self._elements:
            m.exceptions.raise_(IndexError, "pop from an empty deque")
        m.effects.will_mutate(self)
        self.state += 1
        element = self.element(m, index)
        del self._elements[index]
        return element

    def method_rotate(self, m: Machine, n: Value = Constant(1)) -> Value:  # noqa: B008
        m.effects.will_mutate(self)
        self.state += 1
        turned = deque(self._elements)
        turned.rotate(m.concrete.integer(n))
        self._elements[:] = turned
        return Constant(None)

    def method_copy(self, m: Machine) -> Value:
        return DequeValue(list(self.elements(m)), self.maxlen)

    method___copy__ = method_copy

    def method_sort(self, m: Machine, *args: Value, **kwargs: Value) -> Value:  # type: ignore[override]  # a deque's own parameters, not a list's
        m.exceptions.raise_(AttributeError, "'collections.deque' object has no attribute 'sort'")

    def hash_key(self, m: Machine) -> Any:
        m.exceptions.raise_(TypeError, "unhashable type: 'collections.deque'")

    def emit(self, e: Emitting) -> None:
        e.call_function(deque, [TupleValue([]), Constant(self.maxlen)])
        e.name_top(self)
        self.fill(e)

    def fill(self, e: Emitting) -> None:
        if self._elements:
            e.method_call(self, deque.extend, [TupleValue(list(self._elements))])

    def write_back(self, e: Emitting) -> None:
        e.method_call(self, deque.clear, [])
        self.fill(e)


class GrowingDeque(DequeValue):
    """A deque that existed before the call. While captured code only adds to it, at whichever end, nobody asks how long it is."""

    def __init__(self, look: Callable[[], list[Value]], maxlen: int | None, source: Source) -> None:
        self._look, self._found, self._added = look, None, []
        self.maxlen, self.source, self.state = maxlen, source, 0

    _look: Callable[[], list[Value]]
    _found: list[Value] | None
    _added: list[tuple[str, Value]]

    @property
    def _elements(self) -> list[Value]:
        if self._found is None:
            held = deque(self._look(), self.maxlen)
            for name, item in self._added:
                getattr(held, name)(item)
            self._found, self._added = list(held), []
        return self._found

    @_elements.setter
    def _elements(self, elements: list[Value]) -> None:
        self._found = elements

    def method_append(self, m: Machine, item: Value) -> Value:
        return self._add(m, "append", item) if self._found is None else super().method_append(m, item)

    def method_appendleft(self, m: Machine, item: Value) -> Value:
        return self._add(m, "appendleft", item) if self._found is None else super().method_appendleft(m, item)

    def _add(self, m: Machine, name: str, item: Value) -> Value:
        m.effects.will_mutate(self)
        self.state += 1
        self._added.append((name, item))
        return Constant(None)

    def write_back(self, e: Emitting) -> None:
        if self._found is not None:
            super().write_back(e)
            return
        for name, item in self._added:
            e.method_call(self, getattr(deque, name), [item])


class DequeIterator(Value):
    """An iterator over a deque; a change under it is CPython's RuntimeError."""

    def __init__(self, sequence: DequeValue) -> None:
        self.sequence, self.state, self.position = sequence, sequence.state, 0

    def python_type(self) -> type:
        return type(iter(deque()))

    def iterator(self, m: Machine) -> Value:
        return self

    def next(self, m: Machine) -> Value:
        if self.state != self.sequence.state:
            m.exceptions.raise_(RuntimeError, "deque mutated during iteration")
        if self.position >= len(self.sequence.raw_elements()):
            raise Exhausted
        self.position += 1
        return self.sequence.element(m, self.position - 1)

    def emit(self, e: Emitting) -> None:
        e.call_function(
            _advanced, [self.sequence, Constant(self.position), Constant(self.state != self.sequence.state)]
        )


def _advanced(sequence: deque, position: int, changed: bool) -> Any:
    """An iterator over a deque that has already given `position` elements; `changed`: and the deque has changed since."""
    iterator = iter(sequence)
    for _ in range(0 if changed else position):
        next(iterator)
    if changed:
        held = list(sequence)
        sequence.extend(held or [None])
        sequence.clear()
        sequence.extend(held)
    return iterator
