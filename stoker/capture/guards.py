"""The guards of one capture: conditions under which the replacement code may run again.

In:  a source and a check, as the evaluator looks at objects.
Out: `all`, each condition once, in the order in which they were met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import is_plain
from stoker.capture.values.value import Value
from stoker.guard.guard import Check, DictKeys, Equals, Guard, Is, Length, SameAs, TensorMatch
from stoker.guard.source import Attribute, Fixed, Source, root_of

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


class Guards:
    """What must still hold, by what it is about."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.all: dict[Any, Guard] = {}

    def add(self, source: Source, check: Check) -> None:
        """Remember a condition, once."""
        root = root_of(source)
        if isinstance(root, Fixed) and root.snapshot:
            return
        key = (source, check.kind, _argument_key(check))
        if key not in self.all:
            self.all[key] = Guard(source, check, self.m.location())

    def add_unless_fixed(self, source: Source, check: Check) -> None:
        if not isinstance(source, Fixed):
            self.add(source, check)

    def keys(self, source: Source, real: dict) -> None:
        if all(is_plain(key) for key in real):
            self.add(source, DictKeys(tuple(dict.keys(real))))
        else:
            self.add(source, Length(len(real)))

    def attribute_equals(self, source: Any, name: str, value: Any) -> None:
        self.add(Attribute(source, name), Equals(value))

    def identity(self, value: Value) -> None:
        if value.source is not None and not isinstance(value.source, Fixed):
            self.add(value.source, Is(value.real))  # type: ignore[attr-defined]


def _argument_key(check: Check) -> Any:
    try:
        argument = check.argument
    except AssertionError:
        argument = check.other if isinstance(check, SameAs) else check.others  # type: ignore[attr-defined]
    if isinstance(argument, (int, str, float, bytes, bool, type(None), Source)):
        return (type(argument), argument)
    if isinstance(check, DictKeys):
        return "keys"
    return id(argument) if not isinstance(check, (TensorMatch,)) else None
