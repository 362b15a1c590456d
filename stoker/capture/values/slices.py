"""Slices whose parts may be symbolic."""

from __future__ import annotations

from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Value


class SliceValue(Value):
    """`start:stop:step`."""

    def __init__(self, start: Value, stop: Value, step: Value) -> None:
        self.parts = [start, stop, step]

    def python_type(self) -> type:
        return slice

    def constant(self) -> Any:
        return slice(*(part.constant() for part in self.parts))

    def attribute(self, m: Machine, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return m.attributes.builtin(self, name)

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        """As tuples of their parts compare; one and the same slice is equal to itself, whatever its parts say."""
        if other is self:
            return Constant(operator in ("==", "<=", ">="))
        parts = parts_of(other)
        return m.operators.compare(operator, TupleValue(self.parts), TupleValue(parts)) if parts is not None else None

    def specialized(self, m: Machine) -> slice:
        return slice(*map(m.concrete.index, self.parts))

    def emit(self, e: Emitting) -> None:
        e.call_function(slice, self.parts)


def parts_of(value: Value) -> list[Value] | None:
    """Start, stop and step of a slice; None of anything else."""
    if isinstance(value, Constant) and isinstance(value.value, slice):
        return [Constant(part) for part in (value.value.start, value.value.stop, value.value.step)]
    return value.parts if isinstance(value, SliceValue) else None
