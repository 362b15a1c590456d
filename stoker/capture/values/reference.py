"""Weak references, and the number that `id()` gives an object."""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Arguments, IdentityKey, Keywords, Value
from stoker.errors import Break
from stoker.guard.source import Source

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


USED = "the number itself is used, not only compared"


class ReferenceValue(Value):
    """A weakref.ref. Of one whose object is gone, captured code only sees that it is."""

    def __init__(self, target: Value, source: Source | None = None) -> None:
        self.target, self.source = target, source

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, m: Machine) -> bool:
        return True

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        self.target = m.wrap.force(self.target)
        return self.target

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if operator not in ("==", "!=") or not isinstance(other, ReferenceValue):
            return None
        targets = [reference.alive(m) for reference in (self, other)]
        return Constant(m.operators.equal(*targets) == (operator == "=="))

    def hash_key(self, m: Machine) -> Any:
        """References are equal where their objects are."""
        return weakref.ref, self.alive(m).hash_key(m)

    def alive(self, m: Machine) -> Value:
        self.target = m.wrap.force(self.target)
        if isinstance(self.target, Constant) and self.target.value is None:
            raise Break("a weak reference", f"{self.describe()} refers to an object that is gone, and is compared")
        return self.target

    def emit(self, e: Emitter) -> None:
        e.call_function(weakref.ref, [self.target])


class IdentityValue(Value):
    """`id(value)`: a number that is good for comparing and as a key, unknown until the program runs."""

    has_identity = False

    def __init__(self, value: Value) -> None:
        self.value = value

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"id() of {self.value.describe()}"

    def truth(self, m: Machine) -> bool:
        return True

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if operator in ("==", "!="):
            same = (
                m.operators.is_(self.value, other.value)
                if isinstance(other, IdentityValue)
                else self._is_number(m, other)
            )
            return Constant(same == (operator == "=="))
        raise Break("id()", USED)

    def _is_number(self, m: Machine, other: Value) -> bool:
        """Is it a number from elsewhere? Known of an object that existed before the call, which is then always this one."""
        value = m.wrap.force(self.value)
        real = getattr(value, "real", None)
        if value.source is None or real is None or other.python_type() is not int:
            raise Break("id()", USED)
        m.guards.identity(value)
        return m.concrete.constant(other, "id()") == id(real)

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        raise Break("id()", USED)

    def hash_key(self, m: Machine) -> Any:
        if isinstance(self.value, Constant):
            return ("id of", type(self.value.value), self.value.value)
        return IdentityKey(self.value)

    def refuse_among(self, keys: Iterable[Any]) -> None:
        """A key that is a known number may be this one."""
        if any(type(key) is int for key in keys):
            raise Break("id() as a key", "it is looked up among numbers that may be results of id() from before")

    def emit(self, e: Emitter) -> None:
        e.call_function(id, [self.value])


class ThreadIdentity(IdentityValue):
    """`threading.get_ident()`: used as a key by code that guards against recursion."""

    def emit(self, e: Emitter) -> None:
        e.call_function(_thread.get_ident, [])
