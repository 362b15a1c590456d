"""Constants from outside that were others at an earlier call: floats, such as `loss.item()` after a break, or a learning rate; numbers of
numpy; and text (`stoker.capture.values.text`).

Comparing one, or asking whether it is zero, guards the answer and not the number. Arithmetic with it, and tensor operators that
take it, see a symbol (`symbolic`). Whatever else looks at it fixes the number, as for every other constant.
"""

from __future__ import annotations

from typing import Any

from stoker.capture.machine import Machine
from stoker.capture.python_operators import COMPARE
from stoker.capture.values.constant import Constant, Varying
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Value
from stoker.guard.guard import Holds
from stoker.guard.source import Asked, Source


class VaryingFloat(Varying):
    """A float. What computes with it computes with a symbol."""

    def symbolic(self) -> SymbolicValue:
        """The float as an input of the graph, whatever its number."""
        assert self.source is not None
        return SymbolicValue(self.m.sizes.symbol_for_float(self.real, self.source))

    def truth(self, m: Machine) -> bool:
        return self.asked(m, "!=", 0.0)

    def asked(self, m: Machine, operator: str, other: Any) -> bool:
        assert self.source is not None
        compare = COMPARE[operator]
        words = f"{'' if compare(self.real, other) else 'not '}{operator} {other!r}"
        return m.guards.ask(self.source, self.real, lambda now: compare(now, other), words)

    def answer(self, m: Machine, operator: str, other: Value) -> Value | None:
        """A comparison with a known number; None if it is with something else."""
        if isinstance(other, VaryingFloat) or not isinstance(other, Constant):
            return None
        known = type(other.value) in (int, float, bool)
        return Constant(self.asked(m, operator, other.value)) if known else None


class VaryingScalar(VaryingFloat):
    """A float of numpy, which tensor operators take as Python's. numpy's own arithmetic, and its warnings, are of the number that it is."""

    def __init__(self, m: Machine, real: Any, source: Source) -> None:
        super().__init__(m, real, source)
        self.symbol: SymbolicValue | None = None

    @property
    def value(self) -> Any:
        assert self.source is not None
        was = self.real.tobytes()
        self.m.guards.add(self.source, Holds(lambda now: now.tobytes() == was, f"== {self.real!r}"))
        return self.real

    def symbolic(self) -> SymbolicValue:
        assert self.source is not None
        return SymbolicValue(self.m.sizes.symbol_for_float(float(self.real), Asked(self.source, float)))

    def truth(self, m: Machine) -> bool:
        return bool(super().truth(m))


class VaryingInteger(VaryingScalar):
    """An integer of numpy, which tensor operators take as Python's."""

    def symbolic(self) -> SymbolicValue:
        assert self.source is not None
        if self.symbol is None:
            place = Asked(self.source, int)
            self.symbol = SymbolicValue(self.m.sizes.symbol_for_int(self.m, int(self.real), place))
        return self.symbol


ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})
"""What is done to a varying float without looking at its number."""


def symbolic(value: Value) -> Value:
    """A varying float as a symbol; other values as they are, and numpy's, whose arithmetic is numpy's."""
    return value.symbolic() if type(value) is VaryingFloat else value


def as_symbols(operator: str, *values: Value) -> tuple[Value, ...]:
    """The operands of an operator, varying floats as symbols where numbers alone meet in arithmetic."""
    if operator.removesuffix("=") not in ARITHMETIC or not any(isinstance(v, VaryingFloat) for v in values):
        return values
    if not all(isinstance(v, (Constant, SymbolicValue)) and v.python_type() in (int, float) for v in values):
        return values
    return tuple(map(symbolic, values))
