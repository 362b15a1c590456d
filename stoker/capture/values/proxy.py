"""`types.MappingProxyType`: a dictionary of someone else's that can be read and not written."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import Value
from stoker.guard.source import Source

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


class ProxyValue(DictValue):
    """Reads like the dictionary behind it. Its class has no method that writes."""

    def __init__(
        self, entries: dict[Any, tuple[Value, Value]], source: Source | None, behind: DictValue | None = None
    ) -> None:
        super().__init__(entries, source=source)
        self.behind = behind

    def python_type(self) -> type:
        return types.MappingProxyType

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        m.exceptions.raise_(TypeError, "'mappingproxy' object does not support item assignment")

    def delete_item(self, m: Machine, key: Value) -> None:
        m.exceptions.raise_(TypeError, "'mappingproxy' object does not support item deletion")

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator == "|=":
            m.exceptions.raise_(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")
        return super().binary(m, operator, other, reflected)

    def method_copy(self, m: Machine) -> Value:
        return DictValue(dict(self.load_all(m)))

    def emit(self, e: Emitter) -> None:
        if self.behind is None:
            self.unsupported("rebuilding")
        e.call_function(types.MappingProxyType, [self.behind])
