"""`types.MappingProxyType`: a dictionary of someone else's that can be read and not written."""

from __future__ import annotations

import gc
import types
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import Value
from stoker.guard.source import Source


def mapping_behind(proxy: types.MappingProxyType) -> Any:
    """What a proxy is a view of: the one object that it refers to, which it does not show."""
    (mapping,) = gc.get_referents(proxy)
    return mapping


def namespace(cls: type) -> types.MappingProxyType:
    """The dictionary of a class, whatever its metaclass calls by that name."""
    return type.__dict__["__dict__"].__get__(cls)


class ProxyValue(DictValue):
    """Holds nothing: asks the dictionary behind it, which may change meanwhile. Its class has no method that writes."""

    def __init__(self, behind: DictValue, source: Source | None = None) -> None:
        super().__init__(cls=behind.cls, source=source)
        self.behind = behind

    def python_type(self) -> type:
        return types.MappingProxyType

    def load_all(self, m: Machine) -> dict[Any, tuple[Value, Value]]:
        return self.behind.load_all(m)

    def lookup(self, m: Machine, key: Value) -> Value | None:
        return self.behind.lookup(m, key)

    def length(self, m: Machine) -> Value:
        return self.behind.length(m)

    def item(self, m: Machine, key: Value) -> Value:
        return self.behind.item(m, key)

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        m.exceptions.raise_(TypeError, "'mappingproxy' object does not support item assignment")

    def delete_item(self, m: Machine, key: Value) -> None:
        m.exceptions.raise_(TypeError, "'mappingproxy' object does not support item deletion")

    def iterator(self, m: Machine) -> Value:
        return self.behind.iterator(m)

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator == "|=":
            m.exceptions.raise_(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")
        return self.behind.binary(m, operator, other, reflected)

    def method_keys(self, m: Machine) -> Value:
        return self.behind.method_keys(m)

    def method_values(self, m: Machine) -> Value:
        return self.behind.method_values(m)

    def method_items(self, m: Machine) -> Value:
        return self.behind.method_items(m)

    def method_copy(self, m: Machine) -> Value:
        return self.behind.method_copy(m)

    def emit(self, e: Emitting) -> None:
        e.call_function(types.MappingProxyType, [self.behind])
