"""Text with numbers that are not known when capturing: `f"{loss.item():.3f}"`, which only running the program tells, and
`f"{x.shape[0]} rows"`, which is another one for each size. And text from outside that was another at an earlier call.

Text is made when it is shown, or returned. What looks at text of sizes fixes them (tests/differential/test_text_of_sizes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant, Varying
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Arguments, Era, Keywords, Value

SAMPLES = {torch.SymInt: 1, torch.SymFloat: 0.5, torch.SymBool: True}


class TextValue(Value):
    """`function(*parts)`, a string. The function formats, and does nothing else."""

    has_identity = False

    def __init__(self, function: Callable[..., str], parts: list[Value]) -> None:
        self.function, self.parts = function, parts

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text with numbers that only data tells" if self.untold else "text with sizes that vary"

    @property
    def untold(self) -> bool:
        """Does only running the program tell it?"""
        return any(is_untold(part) for part in self.parts)

    def specialize(self, m: Machine) -> str:
        """The text for the sizes seen now, under guards."""
        if self.untold:
            self.unsupported("what it says")
        return m.concrete.run(self.function, *(m.concrete.plain(part, "formatting") for part in self.parts))

    def told(self, m: Machine) -> Value:
        return Constant(self.specialize(m))

    def attribute(self, m: Machine, name: str) -> Value:
        return self.told(m).attribute(m, name)

    def method(self, m: Machine, name: str, args: Arguments, kwargs: Keywords) -> Value:
        return self.told(m).method(m, name, args, kwargs)

    def truth(self, m: Machine) -> bool:
        return self.told(m).truth(m)

    def length(self, m: Machine) -> Value:
        return self.told(m).length(m)

    def item(self, m: Machine, key: Value) -> Value:
        return self.told(m).item(m, key)

    def contains(self, m: Machine, item: Value) -> Value:
        return self.told(m).contains(m, item)

    def iterator(self, m: Machine) -> Value:
        return self.told(m).iterator(m)

    def hash_key(self, m: Machine) -> Any:
        return self.specialize(m)

    def sample(self) -> str:
        """The text, with other numbers of the same types."""
        return self.function(*(_sample(part) for part in self.parts))

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator.removesuffix("=") != "+" or other.python_type() is not str:
            return None
        return joined([other, self] if reflected else [self, other])

    def emit(self, e: Emitting) -> None:
        e.call_function(self.function, self.parts)


class VaryingText(Varying):
    """A string that was another at an earlier call: what hands it on, or shows it, does not fix what it says."""


def is_untold(value: Value) -> bool:
    """Is it a number, or text or a tuple of some, that only running the program tells?"""
    if isinstance(value, TupleValue):
        return any(map(is_untold, value.raw_elements()))
    return isinstance(value, (TextValue, SymbolicValue)) and value.untold


def varies(value: Value) -> bool:
    """Is it a number, or text or a tuple of some, that is another from call to call? A subgraph has no place where text could be made."""
    if isinstance(value, TupleValue) and value.cls in SHOWN_WHOLE:
        parts = value.raw_elements()
        return any(map(varies, parts)) and all(varies(p) or type(p) is Constant for p in parts)
    if isinstance(value, TextValue):
        return True
    if isinstance(value, VaryingText):
        return not Era.now
    return isinstance(value, SymbolicValue) and (value.untold or not Era.now and value.python_type() is not bool)


SHOWN_WHOLE = (tuple, torch.Size)
"""Tuples that show their elements as eager does when they are rebuilt."""


def settled(m: Machine, values: Arguments) -> Arguments:
    """Values as C functions take them: text of sizes is fixed."""
    if not any(type(value) is TextValue for value in values):
        return values
    return [value.told(m) if isinstance(value, TextValue) and not value.untold else value for value in values]


def joined(parts: list[Value]) -> TextValue:
    """One text after the other."""
    return TextValue(_join, parts)


def formatted(names: tuple[str, ...], template: str, *values: Any) -> str:
    """`template.format`, where the last values have names."""
    unnamed = len(values) - len(names)
    return template.format(*values[:unnamed], **dict(zip(names, values[unnamed:])))


def percent(template: str, *values: Any) -> str:
    """`template % values`."""
    return template % values


def _join(*parts: str) -> str:
    return "".join(parts)


def _sample(part: Value) -> Any:
    if isinstance(part, TextValue):
        return part.sample()
    if isinstance(part, VaryingText):
        return part.real
    if isinstance(part, TupleValue):
        return part.cls(map(_sample, part.raw_elements()))
    return SAMPLES[type(part.symbol)] if isinstance(part, SymbolicValue) else part.constant()


def shown(m: Machine, function: Callable[..., str], *parts: Value) -> Value | None:
    """Text that is made when the numbers in it are known; None if they are known already. What raises for these types of numbers
    raises in CPython."""
    if not any(map(varies, parts)):
        return None
    made = TextValue(function, [p if varies(p) else Constant(m.concrete.constant(p, "formatting")) for p in parts])
    try:
        made.sample()
    except (TypeError, ValueError, LookupError):
        made.unsupported("formatting")
    return made
