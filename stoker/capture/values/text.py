"""Text whose fields only running the program tells: `f"{loss.item():.3f}"`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from stoker.capture.values.constant import Constant
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine

SAMPLES = {torch.SymInt: 1, torch.SymFloat: 0.5, torch.SymBool: True}


class TextValue(Value):
    """`function(*parts)`, a string. The function formats, and does nothing else."""

    has_identity = False

    def __init__(self, function: Callable[..., str], parts: list[Value]) -> None:
        self.function, self.parts = function, parts

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text with numbers that only data tells"

    def sample(self) -> str:
        """The text, with other numbers of the same types."""
        return self.function(*(_sample(part) for part in self.parts))

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator.removesuffix("=") != "+" or other.python_type() is not str:
            return None
        return joined([other, self] if reflected else [self, other])

    def emit(self, e: Emitter) -> None:
        e.call_function(self.function, self.parts)


def is_untold(value: Value) -> bool:
    """Is it a number, or text of one, that only running the program tells?"""
    return isinstance(value, TextValue) or isinstance(value, SymbolicValue) and value.untold


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
    return SAMPLES[type(part.symbol)] if isinstance(part, SymbolicValue) else part.constant()


def shown(m: Machine, function: Callable[..., str], *parts: Value) -> Value | None:
    """Text that is made when the numbers in it are known; None if they are known already. What raises for these types of numbers
    raises in CPython."""
    if not any(is_untold(part) for part in parts):
        return None
    made = TextValue(function, [p if is_untold(p) else Constant(m.concrete.constant(p, "formatting")) for p in parts])
    try:
        made.sample()
    except (TypeError, ValueError, LookupError):
        made.unsupported("formatting")
    return made
