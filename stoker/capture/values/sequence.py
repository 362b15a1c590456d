"""Lists and tuples (and torch.Size, named tuples, struct sequences: tuples of another class).

A list that existed before the call is read lazily: its length is guarded when it is asked for, its elements only when used. A
mutated one is written back as a whole, or, where captured code only added to it, what was added.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.python_operators import COMPARE
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.value import Exhausted, Lazy, NotConstant, Value
from stoker.guard.source import Source


class SequenceValue(Value):
    """Shared by lists and tuples: elements in order, some not yet looked at."""

    def __init__(self, elements: list[Value], source: Source | None = None) -> None:
        self._elements, self.source = elements, source

    def elements(self, m: Machine) -> list[Value]:
        """All elements, each looked at."""
        for index, element in enumerate(self._elements):
            if type(element) is Lazy:
                self._elements[index] = m.wrap.force(element)
        return self._elements

    def element(self, m: Machine, index: int) -> Value:
        element = self._elements[index]
        if type(element) is Lazy:
            element = self._elements[index] = m.wrap.force(element)
        return element

    def raw_elements(self) -> list[Value]:
        """The elements without looking: for rebuilding, where a Lazy is just loaded."""
        return self._elements

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)

    def length(self, m: Machine) -> Value:
        return Constant(len(self._elements))

    def truth(self, m: Machine) -> bool:
        return bool(self._elements)

    def iterator(self, m: Machine) -> Value:
        return SequenceIterator(self)

    def items_list(self, m: Machine) -> list[Value]:
        return list(self.elements(m))

    def item(self, m: Machine, key: Value) -> Value:
        index = m.concrete.index(key)
        if isinstance(index, slice):
            return self.like(m.concrete.run(lambda: self._elements[index]))
        self.refuse_index(m, index, key)
        if not -len(self._elements) <= index < len(self._elements):
            m.exceptions.raise_(IndexError, f"{self.python_type().__name__} index out of range")
        return self.element(m, index)

    def refuse_index(self, m: Machine, index: Any, key: Value) -> None:
        """Raise CPython's TypeError for a key that is no integer."""
        if not isinstance(index, int):
            names = self.python_type().__name__, key.python_type().__name__
            m.exceptions.raise_(TypeError, "{} indices must be integers or slices, not {}".format(*names))

    def like(self, elements: list[Value]) -> Value:
        raise NotImplementedError

    def contains(self, m: Machine, item: Value) -> Value:
        return Constant(self.find(m, item) is not None)

    def find(self, m: Machine, item: Value, start: int = 0, stop: int | None = None) -> int | None:
        """Where an element equals the item. Comparing runs the program's code, which may change the sequence meanwhile."""
        index = start
        while index < len(self._elements) and (stop is None or index < stop):
            element = self.element(m, index)
            if element is item or m.operators.equal(element, item):
                return index
            index += 1
        return None

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        other = as_sequence(m, other)
        if not isinstance(other, SequenceValue) or not _same_kind(self, other):
            return None
        if operator in ("==", "!=") and len(self._elements) != len(other._elements):
            return Constant(operator == "!=")
        index = 0
        while index < min(len(self._elements), len(other._elements)):
            a, b = self.element(m, index), other.element(m, index)
            if a is b or m.operators.equal(a, b):
                index += 1
            elif index < min(len(self._elements), len(other._elements)):  # which comparing may have changed
                return Constant(operator == "!=") if operator in ("==", "!=") else m.operators.compare(operator, a, b)
        return Constant(COMPARE[operator](len(self._elements), len(other._elements)))

    kind_name = "list"

    def method_index(self, m: Machine, item: Value, start: Value = Constant(0), stop: Value | None = None) -> Value:  # noqa: B008
        low, high, _ = slice(m.concrete.bound(start), m.concrete.bound(stop) if stop is not None else None).indices(
            len(self._elements)
        )
        found = self.find(m, item, low, None if stop is None else high)
        if found is None:
            m.exceptions.raise_(ValueError, self.without(m, item))
        return Constant(found)

    def without(self, m: Machine, item: Value) -> str:
        """CPython's words for an element that `index` does not find."""
        return f"{m.concrete.run(repr, m.concrete.plain(item, 'index()'))} is not in {self.kind_name}"

    def method_count(self, m: Machine, item: Value) -> Value:
        count, index = 0, self.find(m, item)
        while index is not None:
            count, index = count + 1, self.find(m, item, index + 1)
        return Constant(count)


class ListValue(SequenceValue):
    """A list. `mutated` lists that have a source are written back after the graph ran."""

    kind: type = list

    def python_type(self) -> type:
        return list

    def like(self, elements: list[Value]) -> Value:
        return ListValue(elements)

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        index = m.concrete.index(key)
        m.effects.will_mutate(self)
        if isinstance(index, slice):
            new = value.items_list(m)
            m.concrete.run(lambda: self._elements.__setitem__(index, new))
            return
        self.refuse_index(m, index, key)
        if not -len(self._elements) <= index < len(self._elements):
            m.exceptions.raise_(IndexError, "list assignment index out of range")
        self._elements[index] = value

    def delete_item(self, m: Machine, key: Value) -> None:
        index = m.concrete.index(key)
        m.effects.will_mutate(self)
        if not isinstance(index, slice):
            self.refuse_index(m, index, key)
        m.concrete.run(lambda: self._elements.__delitem__(index))

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        held = other.stored()  # C looks into a subclass
        if operator == "+" and isinstance(held, ListValue) and held.python_type() is list and not reflected:
            return ListValue([*self.elements(m), *held.elements(m)])
        if operator == "+=" and not reflected:
            self.method_extend(m, other)
            return self
        if operator in ("*", "*=") and hasattr(other.python_type(), "__index__"):
            count = m.concrete.integer(other)
            if operator == "*=":
                m.effects.will_mutate(self)
                self._elements[:] = self.elements(m) * count
                return self
            return ListValue(self.elements(m) * count)
        return None

    def method_append(self, m: Machine, item: Value) -> Value:
        m.effects.will_mutate(self)
        self._elements.append(item)
        return Constant(None)

    def method_extend(self, m: Machine, items: Value) -> Value:
        if getattr(items, "storage", None) is self:  # CPython takes all of itself before it grows
            items = ListValue(items.items_list(m))
        if is_taken_one_by_one(items):
            m.effects.will_mutate(self)
            take_each(m, items, self._elements.append)
            return Constant(None)
        new = items.items_list(m)
        m.effects.will_mutate(self)
        self._elements.extend(new)
        return Constant(None)

    def method_insert(self, m: Machine, index: Value, item: Value) -> Value:
        m.effects.will_mutate(self)
        self._elements.insert(m.concrete.integer(index), item)
        return Constant(None)

    def method_pop(self, m: Machine, index: Value = Constant(-1)) -> Value:  # noqa: B008
        position = m.concrete.integer(index)
        if not self._elements:
            m.exceptions.raise_(IndexError, "pop from empty list")
        if not -len(self._elements) <= position < len(self._elements):
            m.exceptions.raise_(IndexError, "pop index out of range")
        m.effects.will_mutate(self)
        element = self.element(m, position)
        del self._elements[position]
        return element

    def method_remove(self, m: Machine, item: Value) -> Value:
        index = self.find(m, item)
        if index is None:
            m.exceptions.raise_(ValueError, "list.remove(x): x not in list")
        m.effects.will_mutate(self)
        del self._elements[index : index + 1]
        return Constant(None)

    def method_clear(self, m: Machine) -> Value:
        m.effects.will_mutate(self)
        self._elements.clear()
        return Constant(None)

    def method_reverse(self, m: Machine) -> Value:
        m.effects.will_mutate(self)
        self._elements.reverse()
        return Constant(None)

    def method_copy(self, m: Machine) -> Value:
        return ListValue(list(self.elements(m)))

    def method_sort(self, m: Machine, key: Value | None = None, reverse: Value = Constant(False)) -> Value:  # noqa: B008
        """As CPython's: while it runs, the list is empty."""
        m.effects.will_mutate(self)
        found = held = list(self.elements(m))
        self._elements.clear()
        try:
            found = sort_values(m, held, key, reverse)
        finally:
            changed = bool(self._elements)
            self._elements[:] = found
        if changed:
            m.exceptions.raise_(ValueError, "list modified during sort")
        return Constant(None)

    def hash_key(self, m: Machine) -> Any:
        m.exceptions.raise_(TypeError, "unhashable type: 'list'")

    def emit(self, e: Emitting) -> None:
        e.build_then_fill(self, "BUILD_LIST", [], lambda: self.fill(e))

    def fill(self, e: Emitting) -> None:
        """With the list itself loaded by name, add its elements."""
        if self._elements:
            e.method_call(self, list.extend, [TupleValue(list(self._elements))])

    def write_back(self, e: Emitting) -> None:
        """Make the list that existed before hold what this one holds."""
        e.call_function(list.__setitem__, [self, Constant(slice(None)), TupleValue(list(self._elements))])
        e.pop()


class GrowingList(ListValue):
    """A list that existed before the call. While captured code only adds to it, nobody asks how long it is."""

    def __init__(self, look: Callable[[], list[Value]], source: Source) -> None:
        self._look, self._found, self._added = look, None, []
        self.source = source

    _look: Callable[[], list[Value]]
    _found: list[Value] | None
    _added: list[Value]

    @property
    def _elements(self) -> list[Value]:
        if self._found is None:
            self._found, self._added = self._look() + self._added, []
        return self._found

    @_elements.setter
    def _elements(self, elements: list[Value]) -> None:
        self._found = elements

    def method_append(self, m: Machine, item: Value) -> Value:
        m.effects.will_mutate(self)
        self._end().append(item)
        return Constant(None)

    def method_extend(self, m: Machine, items: Value) -> Value:
        if self._found is not None or items is self:
            return super().method_extend(m, items)
        m.effects.will_mutate(self)
        take_each(m, items, lambda item: self._end().append(item))
        return Constant(None)

    def _end(self) -> list[Value]:
        """What new elements are added to."""
        return self._added if self._found is None else self._found

    def write_back(self, e: Emitting) -> None:
        if self._found is not None:
            super().write_back(e)
            return
        e.call_function(list.extend, [self, TupleValue(list(self._added))])
        e.pop()


class TupleValue(SequenceValue):
    """A tuple, or an instance of a tuple class without state of its own (torch.Size, named tuples, struct sequences)."""

    def __init__(self, elements: list[Value], cls: type = tuple, source: Source | None = None) -> None:
        super().__init__(elements, source)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def without(self, m: Machine, item: Value) -> str:
        return "tuple.index(x): x not in tuple"

    def like(self, elements: list[Value]) -> Value:
        return TupleValue(elements, torch.Size if self.cls is torch.Size else tuple)

    def constant(self) -> Any:
        parts = tuple(e.constant() if not isinstance(e, Lazy) else _lazy_constant(e) for e in self._elements)
        if self.cls is tuple:
            return parts
        if self.cls is torch.Size:
            return torch.Size(parts)
        if hasattr(self.cls, "_make"):
            return self.cls._make(parts)
        raise NotConstant(self.cls.__name__)

    def attribute(self, m: Machine, name: str) -> Value:
        if self.cls is tuple or self.cls is torch.Size:
            return m.attributes.builtin(self, name)
        if hasattr(self.cls, "n_sequence_fields") and not name.startswith("__"):
            for index in range(self.cls.n_sequence_fields):
                if getattr(self.cls, name, None) is getattr(self.cls, _field_name(self.cls, index), 0):
                    return self.element(m, index)
        return m.attributes.instance(self, self.cls, name)

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        other = as_sequence(m, other.stored() if issubclass(other.python_type(), tuple) else other)
        if operator in ("+", "+=") and isinstance(other, TupleValue):
            left, right = (other, self) if reflected else (self, other)
            size = torch.Size if torch.Size in (self.cls, other.cls) else tuple
            return TupleValue([*left.elements(m), *right.elements(m)], size)
        if operator in ("*", "*=") and hasattr(other.python_type(), "__index__"):
            return self.like(self.elements(m) * m.concrete.integer(other))
        return None

    def hash_key(self, m: Machine) -> Any:
        return tuple(element.hash_key(m) for element in self.elements(m))

    def method_numel(self, m: Machine) -> Value:
        total: Value = Constant(1)
        for element in self.elements(m):
            total = m.operators.binary("*", total, element)
        return total

    def emit(self, e: Emitting) -> None:
        if self.cls is tuple:
            for element in self._elements:
                e.load(element)
            e.build("BUILD_TUPLE", len(self._elements))
        elif self.cls is torch.Size or hasattr(self.cls, "n_sequence_fields"):
            e.call_function(self.cls, [TupleValue(self._elements)])
        else:
            e.call_function(tuple.__new__, [m_class(self.cls), TupleValue(self._elements)])


SPECIAL = tuple(
    name
    for name in vars(tuple)
    if name not in ("__new__", "__repr__", "__doc__", "__getnewargs__", "__class_getitem__")
)


@functools.cache
def is_plain_tuple(cls: Any) -> bool:
    """Does an instance hold its elements and nothing else, and do nothing with them but what a tuple does?"""
    bases = cls.__mro__[: cls.__mro__.index(tuple)]
    written = any(isinstance(vars(base).get(name), types.FunctionType) for base in bases for name in SPECIAL)
    return not cls.__dictoffset__ and not written


def as_sequence(m: Machine, value: Value) -> Value:
    """A tuple of plain data from outside may be a constant: a key of a dictionary, an element of a set."""
    return m.wrap.constant(value.value) if isinstance(value, Constant) and isinstance(value.value, tuple) else value


def m_class(cls: type) -> Value:
    """A class as a value to load, nothing more."""
    return Constant(cls)


def _lazy_constant(lazy: Lazy) -> Any:
    if is_plain(lazy.real):
        raise NotConstant("not looked at yet")
    raise NotConstant(type(lazy.real).__name__)


def _field_name(cls: type, index: int) -> str:
    names = [n for n, v in vars(cls).items() if type(v).__name__ == "member_descriptor"]
    return names[index] if index < len(names) else ""


def is_taken_one_by_one(items: Value) -> bool:
    """Does what takes its elements run code between them, which may raise, or look at what was taken so far?"""
    return type(items).items_list is Value.items_list


def take_each(m: Machine, items: Value, take: Callable[[Value], Any]) -> None:
    iterator = m.operators.iterate(items)
    with contextlib.suppress(Exhausted):
        while True:
            take(iterator.next(m))


class SequenceIterator(Value):
    """An iterator over a list or tuple. It sees later changes of the list, as CPython's does."""

    def __init__(self, sequence: SequenceValue, step: int = 1) -> None:
        self.sequence, self.step = sequence, step
        self.position = 0 if step > 0 else len(sequence.raw_elements()) - 1
        self.done = False

    def python_type(self) -> type:
        kind = self.sequence.python_type()
        if self.step < 0:
            return type(reversed([])) if kind is list else reversed
        return type(iter([])) if issubclass(kind, list) else type(iter(()))

    def iterator(self, m: Machine) -> Value:
        return self

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)

    def next(self, m: Machine) -> Value:
        if self.done or not 0 <= self.position < len(self.sequence.raw_elements()):
            self.done = True
            raise Exhausted
        element = self.sequence.element(m, self.position)
        self.position += self.step
        return element

    def emit(self, e: Emitting) -> None:
        """CPython restores such an iterator with `__setstate__(position)`; the sequence itself stays shared."""
        if self.done:
            e.call_function(iter, [TupleValue([])])
            return
        e.call_function(iter if self.step > 0 else reversed, [self.sequence])
        e.name_top(self)
        e.call_method_on_top("__setstate__", [Constant(self.position)])


def sort_values(m: Machine, values: list[Value], key: Value | None, reverse: Value) -> list[Value]:
    """Sort by Python's own sort over constants; other keys would compare symbolically."""
    keys = values
    if key is not None and not (isinstance(key, Constant) and key.value is None):
        keys = [key.call(m, [value], {}) for value in values]
    backwards = reverse.truth(m)
    try:
        ranked: list[Any] = [k.constant() for k in keys]
    except NotConstant:
        ranked = [_Compared(m, k) for k in keys]
    order = m.concrete.run(lambda: sorted(range(len(ranked)), key=lambda i: ranked[i], reverse=backwards))
    return [values[index] for index in order]


class _Compared:
    """Lets Python's own sort ask the evaluator, comparison by comparison."""

    __slots__ = ("m", "value")

    def __init__(self, m: Machine, value: Value) -> None:
        self.m, self.value = m, value

    def __lt__(self, other: _Compared) -> bool:
        return self.m.operators.compare("<", self.value, other.value).truth(self.m)


def _same_kind(left: SequenceValue, right: SequenceValue) -> bool:
    kinds = (list, tuple, collections.deque)
    return all(issubclass(left.python_type(), kind) == issubclass(right.python_type(), kind) for kind in kinds)
