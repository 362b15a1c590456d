"""Slices whose parts may be symbolic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


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

    def truth(self, m: Machine) -> bool:
        return True

    def specialized(self, m: Machine) -> slice:
        return slice(*(m.concrete.constant(part, "slicing") for part in self.parts))

    def emit(self, e: Emitter) -> None:
        e.call_function(slice, self.parts)
