"""Immutable data known to the evaluator: numbers, strings, None, dtypes, devices, enum members, ranges, ...

Operations on constants run for real: the evaluator calls Python's own operator, and an exception becomes the
program's exception.
"""

from __future__ import annotations

import enum
import re
import types
from typing import Any

import numpy
import torch

from stoker import torch_private
from stoker.capture.machine import Emitting, Machine
from stoker.capture.python_operators import COMPARE, SPECIAL_BINARY, SPECIAL_COMPARE, UNARY
from stoker.capture.values.value import Arguments, Exhausted, Keywords, NotConstant, Value
from stoker.guard.guard import Equals
from stoker.guard.source import Fixed, InstanceDict, Source

SCALARS = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
PLAIN = SCALARS + (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.qscheme,
    range,
    re.Pattern,
    re.Match,
    types.CodeType,
    types.GenericAlias,
    torch_private.SDPBackend,
)


NUMPY_SCALARS = (numpy.bool_, *(numpy.dtype(code).type for code in "bhilqBHILQefdFD"))


def is_numpy_scalar(obj: Any) -> bool:
    return type(obj) in NUMPY_SCALARS


def python_number(obj: Any) -> Any:
    """What torch takes a numpy scalar for: the Python number, 0.0 or 1.0 for a truth value; other objects as they are."""
    if type(obj) is numpy.bool_:
        return float(obj)
    return obj.item() if type(obj) in NUMPY_SCALARS else obj


def is_plain(obj: Any) -> bool:
    """May this object be a Constant: immutable, compared by value, safe to bake into code?"""
    kind = type(obj)
    if kind in PLAIN or isinstance(obj, (enum.Enum, numpy.dtype)) or kind in NUMPY_SCALARS:
        return True
    if kind is tuple or kind is frozenset or kind is torch.Size:
        return all(is_plain(element) for element in obj)
    return kind is slice and all(is_plain(part) for part in (obj.start, obj.stop, obj.step))


class Constant(Value):
    """A known immutable object."""

    has_identity = False

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source

    def __repr__(self) -> str:
        return f"Constant({self.value!r})"

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"`{self.source.text}`" if self.source else repr(self.value)[:60]

    def constant(self) -> Any:
        return self.value

    def attribute(self, m: Machine, name: str) -> Value:
        if isinstance(self.value, enum.Enum):
            return self.member_attribute(m, name)
        found = m.concrete.run(getattr, self.value, name)
        if isinstance(found, (types.BuiltinMethodType, types.MethodWrapperType)):
            return m.attributes.bound_builtin(self, name)
        return m.wrap.constant(found)

    def member_attribute(self, m: Machine, name: str) -> Value:
        """An attribute of an enum member: in its own dictionary, or its class's."""
        raw = m.attributes.class_lookup(type(self.value), name)
        if name in ("name", "value") and type(raw) is not property:
            name = f"_{name}_"
        held = m.wrap.dictionary(vars(self.value), InstanceDict(Fixed(self.value, str(self.value)))).lookup(
            m, Constant(name)
        )
        if held is not None:
            return held
        if isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return m.attributes.bound_builtin(self, name)
        return m.attributes.instance(self, type(self.value), name)

    def truth(self, m: Machine) -> bool:
        return m.concrete.run(bool, self.value)

    def length(self, m: Machine) -> Value:
        return Constant(m.concrete.run(len, self.value))

    def item(self, m: Machine, key: Value) -> Value:
        if isinstance(self.value, (str, bytes, range)):
            return m.wrap.constant(m.concrete.run(lambda: self.value[m.concrete.index(key)]))
        return m.wrap.constant(m.concrete.run(lambda: self.value[m.concrete.constant(key, "indexing")]))

    def contains(self, m: Machine, item: Value) -> Value:
        try:
            needle = item.constant()
        except NotConstant:
            return self.contains_unknown(m, item)
        return Constant(m.concrete.run(lambda: needle in self.value))

    def contains_unknown(self, m: Machine, item: Value) -> Value:
        """An element that is no constant: found by hash in a frozenset, by comparing with each element elsewhere."""
        if isinstance(self.value, (str, bytes)):
            item.unsupported("the `in` operator on a string")
        if isinstance(self.value, frozenset) and issubclass(
            item.python_type(), set
        ):  # which is looked up as one that has a hash
            return Constant(frozenset(item.stored()._entries) in self.value)  # type: ignore[attr-defined]  # a set
        if isinstance(self.value, frozenset):
            return Constant(not item.is_none_of(m, self.value) and item.hash_key(m) in self.value)
        if isinstance(self.value, enum.Enum):
            return m.attributes.instance(self, type(self.value), "__contains__").call(m, [item], {})
        elements = [m.wrap.constant(element) for element in m.concrete.run(iter, self.value)]
        return Constant(any(m.operators.equal(element, item) for element in elements))

    def iterator(self, m: Machine) -> Value:
        elements = m.concrete.run(iter, self.value)
        return ConstantIterator(elements, type(elements))

    def unary(self, m: Machine, operator: str) -> Value:
        run = m.arrays.unwarned(UNARY[operator]) if is_numpy_scalar(self.value) else UNARY[operator]
        return Constant(m.concrete.run(run, self.value))

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        name = SPECIAL_BINARY.get(operator)
        return self._with_inside_of(m, f"__{'r' if reflected else ''}{name}__", other) if name is not None else None

    def _with_inside_of(self, m: Machine, special: str, other: Value) -> Value | None:
        """An operator with an instance of a subclass of a number or of text: C looks into it. None is NotImplemented."""
        held, own = other.stored(), getattr(type(self.value), special, None)
        if held is other or own is None or type(self) is not Constant or type(held) is not Constant:
            return None
        try:
            found = own(self.value, held.value)
        except TypeError:
            return None
        except Exception:  # noqa: BLE001 (it is raised in the program, where it can be caught)
            found = m.concrete.run(own, self.value, held.value)
        return m.wrap.constant(found) if found is not NotImplemented else None

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if not isinstance(self.value, numpy.dtype):
            return self._with_inside_of(m, SPECIAL_COMPARE[operator], other)
        return m.wrap.constant(m.concrete.run(COMPARE[operator], self.value, m.concrete.constant(other, "a dtype")))

    def hash_key(self, m: Machine) -> Any:
        m.concrete.run(hash, self.value)
        return self.value

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        if isinstance(self.value, types.GenericAlias):
            return m.wrap.object(self.value.__origin__).call(m, args, kwargs)
        m.exceptions.raise_(TypeError, f"'{type(self.value).__name__}' object is not callable")
        return None

    def emit(self, e: Emitting) -> None:
        e.const(self.value)


class ConstantIterator(Value):
    """An iterator over a constant (range, string, tuple, bytes), advanced for real."""

    def __init__(self, elements: Any, kind: type) -> None:
        self.elements, self.kind = elements, kind
        self.ahead: list[Any] | None = None

    def python_type(self) -> type:
        return self.kind

    def iterator(self, m: Machine) -> Value:
        return self

    def next(self, m: Machine) -> Value:
        try:
            return m.wrap.constant(next(self.elements))
        except StopIteration:
            raise Exhausted from None

    def emit(self, e: Emitting) -> None:
        """What is left, as a fresh iterator of the same kind: `__reduce__` says how CPython itself would copy it."""
        if self.kind is type(iter(range(0))):
            constructor, (remaining, *_), *state = self.elements.__reduce__()
            done = state[0] if state else 0
            e.call_function(iter, [Constant(remaining[done or 0 :])])
            return
        self.ahead = list(self.elements)
        self.elements = iter(self.ahead)
        e.call_function(iter, [Constant(tuple(self.ahead))])


class Varying(Constant):
    """A constant that is a guard only once someone has looked at it: reading `value` is looking."""

    def __init__(self, m: Machine, real: Any, source: Source) -> None:
        self.m, self.real, self.source = m, real, source

    @property
    def value(self) -> Any:
        assert self.source is not None
        self.m.guards.add(self.source, Equals(self.real))
        return self.real

    def python_type(self) -> type:
        return type(self.real)

    def describe(self) -> str:
        assert self.source is not None
        return f"`{self.source.text}`"
