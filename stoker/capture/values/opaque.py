"""Objects that captured code may pass on but not look into: any operation on one breaks, with the reason."""

from __future__ import annotations

from typing import Any, NoReturn

from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.source import Source


class OpaqueValue(Value):
    """An object from outside that the evaluator has no model of."""

    def __init__(self, real: Any, source: Source, construct: str, reason: str) -> None:
        self.real, self.source, self.construct, self.reason = real, source, construct, reason

    def python_type(self) -> type:
        return type(self.real)

    def unsupported(self, what: str, fix: str | None = None) -> NoReturn:
        raise Break(self.construct, self.reason)

    def binary(self, m: Any, operator: str, other: Value, reflected: bool) -> Value | None:
        self.unsupported("an operator")

    def compare(self, m: Any, operator: str, other: Value) -> Value | None:
        self.unsupported("a comparison")
