"""Text made of values: f-strings, str(), repr() of containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.mapping import DictValue, SetValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import NotConstant, Value

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

CONVERSIONS = {0: None, 1: "__str__", 2: "__repr__", 3: None}


class Text:
    """Mixed into the machine."""

    def plain(self: Machine, value: Value, what: str) -> Any:
        """A real object that prints as the value prints."""
        if isinstance(value, SymbolicValue):
            return value.specialize(self)
        match value:
            case ListValue():
                return [self.plain(element, what) for element in value.elements(self)]
            case DictValue():
                pairs = {self.plain(k, what): self.plain(v, what) for k, v in value.pairs(self)}
                return pairs if value.cls is dict else value.cls(pairs)
            case TupleValue() if value.cls is tuple:
                return tuple(self.plain(element, what) for element in value.elements(self))
            case SetValue():
                return value.cls(self.plain(element, what) for element in value.elements(self))
            case InstanceValue():
                return Shown(self, value)
        try:
            return value.constant()
        except NotConstant:
            value.unsupported(what)

    def format_value(self: Machine, value: Value, conversion: int, specification: Value) -> Value:
        """One field of an f-string."""
        if conversion:
            value = self.convert_value(value, conversion)
        spec = self.constant_of(specification, "a format specification")
        if isinstance(value, InstanceValue):
            found = value.special(self, "__format__", Constant(spec))
            if found is not None:
                return found
        return Constant(self.run_real(format, self.plain(value, "formatting"), spec))

    def convert_value(self: Machine, value: Value, conversion: int) -> Value:
        function: Any = {1: str, 2: repr, 3: ascii}[conversion]
        if isinstance(value, InstanceValue):
            found = value.special(self, "__str__" if conversion == 1 else "__repr__")
            if found is not None:
                return found
        return Constant(self.run_real(function, self.plain(value, "formatting")))

    def join_strings(self: Machine, parts: list[Value]) -> Value:
        return Constant("".join(self.constant_of(part, "an f-string") for part in parts))


class Shown:
    """Prints as the evaluator says that an instance prints."""

    def __init__(self, m: Machine, value: InstanceValue) -> None:
        self.m, self.value = m, value

    def _ask(self, special: str, *args: Value) -> str:
        found = self.value.special(self.m, special, *args)
        return self.m.constant_of(found, "text") if found is not None else self.value.unsupported("text")

    def __repr__(self) -> str:
        return self._ask("__repr__")

    def __str__(self) -> str:
        return self._ask("__str__")

    def __format__(self, specification: str) -> str:
        return self._ask("__format__", Constant(specification))
