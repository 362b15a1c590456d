"""Text made of values: f-strings, str(), repr() of containers."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import InstanceValue, ObjectValue
from stoker.capture.values.text import TextValue, VaryingText, joined, shown
from stoker.capture.values.value import Value
from stoker.capture.values.varying import VaryingFloat
from stoker.guard.source import Fixed

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

CONVERSIONS = {0: None, 1: "__str__", 2: "__repr__", 3: None}


class Text:
    """What formatting gives."""

    def __init__(self, m: Machine) -> None:
        self.m = m

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
            found = value.special(self.m, "__format__", Constant(spec))
            if found is not None:
                return found
        found = self.told(value, lambda now: format(now, spec))
        if found is not None:
            return found
        return Constant(self.m.concrete.run(format, self.m.concrete.plain(value, "formatting"), spec))

    def convert(self, value: Value, conversion: int) -> Value:
        function: Any = {1: str, 2: repr, 3: ascii}[conversion]
        if isinstance(value, InstanceValue):
            found = value.special(self.m, "__str__" if conversion == 1 else "__repr__")
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
        varies = isinstance(value, (VaryingFloat, VaryingText))
        real = value.value if isinstance(value, Constant) and not varies else None
        if isinstance(value, ObjectValue) and isinstance(value.real, (type, types.ModuleType)):
            real = value.real
        if not isinstance(real, (type, types.ModuleType, enum.Enum)):
            return None
        return Constant(self.m.guards.ask(Fixed(real, value.describe()), real, show, "shows as before"))

    def join(self, parts: list[Value]) -> Value:
        if any(isinstance(part, TextValue) for part in parts):
            return joined(parts)
        return Constant("".join(self.m.concrete.constant(part, "an f-string") for part in parts))


class Shown:
    """Prints as the evaluator says that an instance prints."""

    def __init__(self, m: Machine, value: InstanceValue) -> None:
        self.m, self.value = m, value

    def _ask(self, special: str, *args: Value) -> str:
        found = self.value.special(self.m, special, *args)
        return self.m.concrete.constant(found, "text") if found is not None else self.value.unsupported("text")

    def __repr__(self) -> str:
        return self._ask("__repr__")

    def __str__(self) -> str:
        return self._ask("__str__")

    def __format__(self, specification: str) -> str:
        return self._ask("__format__", Constant(specification))

    def __getattr__(self, name: str) -> Any:
        self.value.unsupported(f"attribute {name!r} in a format")

    def __getitem__(self, key: Any) -> Any:
        self.value.unsupported("indexing in a format")

    def __int__(self) -> int:
        self.value.unsupported("formatting as a number")

    __index__ = __float__ = __int__
