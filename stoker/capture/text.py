"""Text made of values: f-strings, str(), repr() of containers."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

from stoker.capture.machine import Machine
from stoker.capture.static import static_lookup
from stoker.capture.values.constant import Constant, Varying
from stoker.capture.values.instance import InstanceValue, ObjectValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.text import TextValue, joined, shown
from stoker.capture.values.value import Value
from stoker.guard.source import Fixed

CONVERSIONS = {0: None, 1: "__str__", 2: "__repr__", 3: None}


class Text:
    """What formatting gives."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.showing: list[Value] = []  # whose text is being made: one that holds itself is shown shorter inside

    def format(self, value: Value, conversion: int, specification: Value) -> Value:
        """One field of an f-string."""
        if conversion:
            value = self.convert(value, conversion)
        deferred = shown(self.m, format, value, specification)
        if deferred is not None:
            return deferred
        spec = self.m.concrete.constant(specification, "a format specification")
        if isinstance(value, InstanceValue):
            formats = self.m.attributes.class_lookup(value.cls, "__format__")
            if isinstance(value.storage, Constant) and not spec and not isinstance(formats, types.FunctionType):
                return self.convert(value, 1)
        if isinstance(value, InstanceValue) or is_shown_by_class(value):
            found = special(self.m, value, "__format__", Constant(spec))
            if found is not None:
                return found
        found = self.told(value, lambda now: format(now, spec))
        if found is not None:
            return found
        return Constant(self.m.concrete.run(format, self.m.concrete.plain(value, "formatting"), spec))

    def convert(self, value: Value, conversion: int) -> Value:
        function: Any = {1: str, 2: repr, 3: ascii}[conversion]
        if isinstance(value, InstanceValue) or is_shown_by_class(value):
            found = special(self.m, value, "__str__" if conversion == 1 else "__repr__")
            if found is not None and conversion == 3:
                text = self.m.concrete.constant(found, "ascii()")
                return Constant(text.encode("ascii", "backslashreplace").decode("ascii"))
            if found is not None:
                return found
        found = self.told(value, function) or shown(self.m, function, value)
        if found is not None:
            return found
        return Constant(self.m.concrete.run(function, self.m.concrete.plain(value, "formatting")))

    def told(self, value: Value, show: Callable[[Any], str]) -> Value | None:
        """The text of an object whose names may change: a class, a module, a member of an enumeration, a function. None for other
        kinds."""
        if isinstance(value, ObjectValue) and isinstance(value.real, types.FunctionType):
            if id(value) in self.m.effects.mutated:
                value.unsupported("formatting, after a change of it,")
            return Constant(self.m.guards.ask_the_same(value, value.real, show, "formatting"))
        real = value.value if isinstance(value, Constant) and not isinstance(value, Varying) else None
        if isinstance(value, ObjectValue) and isinstance(value.real, (type, types.ModuleType)):
            real = value.real
        if not isinstance(real, (type, types.ModuleType, enum.Enum)):
            return None
        return Constant(self.m.guards.ask(Fixed(real, value.describe()), real, show, "shows as before"))

    def join(self, parts: list[Value]) -> Value:
        if any(isinstance(part, TextValue) for part in parts):
            return joined(parts)
        return Constant("".join(self.m.concrete.constant(part, "an f-string") for part in parts))


SHOWN_BY = ("__repr__", "__str__", "__format__")


def is_shown_by_class(value: Value) -> bool:
    """Is it a tuple whose class says in Python how it is shown? That of a named tuple does."""
    if not isinstance(value, TupleValue) or value.cls is tuple:
        return False
    return any(isinstance(static_lookup(value.cls, name), types.FunctionType) for name in SHOWN_BY)


def special(m: Machine, value: Value, name: str, *args: Value) -> Value | None:
    """What a special method gives; None where the class has none."""
    if isinstance(value, InstanceValue):
        return value.special(m, name, *args)
    method = m.attributes.special_method(value, name)
    return method.call(m, list(args), {}) if method is not None else None


class Shown:
    """Prints as the evaluator says that an object prints; a format that asks for an attribute or an item of it asks the evaluator."""

    __slots__ = ("_of",)
    _of: tuple[Machine, Value]

    def __init__(self, m: Machine, value: Value) -> None:
        self._of = (m, value)

    def __repr__(self) -> str:
        return _asked(self, "__repr__")

    def __str__(self) -> str:
        return _asked(self, "__str__")

    def __format__(self, specification: str) -> str:
        return _asked(self, "__format__", Constant(specification))

    def __getattribute__(self, name: str) -> Any:
        m, value = _behind(self)
        return m.concrete.plain(m.attributes.read(value, name), "formatting")

    def __getitem__(self, key: Any) -> Any:
        m, value = _behind(self)
        return m.concrete.plain(m.operators.item(value, Constant(key)), "formatting")

    def __int__(self) -> int:
        _, value = _behind(self)
        value.unsupported("formatting as a number")

    __index__ = __float__ = __int__


def _behind(shown: Shown) -> tuple[Machine, Value]:
    return object.__getattribute__(shown, "_of")


def _asked(shown: Shown, name: str, *args: Value) -> str:
    m, value = _behind(shown)
    found = special(m, value, name, *args)
    return m.concrete.constant(found, "text") if found is not None else value.unsupported("text")
