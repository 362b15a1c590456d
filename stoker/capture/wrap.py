"""Objects of the program's surroundings to Values, and the guards that reading them needs.

In:  a real object and the source it was found at.
Out: its Value. The same object gives the same Value, however it was reached; reaching it a second way adds a guard.
"""

from __future__ import annotations

import collections
import types
import typing
from typing import Any

import torch

from stoker.capture.kinds import BUILTIN_CALLABLES, fixed_source, value_of
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.sets import SetRecipe, SetValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Lazy, Value
from stoker.errors import Break
from stoker.guard.guard import (
    Is,
    SameAs,
    TypeIs,
)
from stoker.guard.source import (
    Attribute,
    DictKey,
    Fixed,
    InstanceDict,
    Source,
)

ALIASES = (type(typing.List[int]), type(typing.Optional[int]), type(typing.Any), typing.TypeVar)  # noqa: UP006, UP045


class Wrapper:
    """Which Value stands for which object: `known` holds each pair once met."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.known: dict[int, tuple[Value, Any]] = {}

    def force(self, value: Value) -> Value:
        """Look at a value that nobody had looked at."""
        if type(value) is Lazy:
            if value.forced is None:
                assert value.source is not None
                value.forced = self.at(value.real, value.source)
            return value.forced
        return value

    def at(self, real: Any, source: Source) -> Value:
        known = self.known.get(id(real))
        if known is not None:
            self.reached_again(known[0], real, source)
            return known[0]
        value = value_of(self.m, real, source)
        if not isinstance(value, (Constant, SymbolicValue)):
            self.known[id(real)] = (value, real)
        return value

    def reached_again(self, value: Value, real: Any, source: Source) -> None:
        first = value.source
        if first is None or first == source:
            return
        if isinstance(real, (types.ModuleType, type)):
            self.m.guards.add_unless_fixed(source, Is(real))
        elif isinstance(first, Fixed):
            if not isinstance(source, Fixed):
                self.m.guards.add(source, Is(real))
        elif isinstance(source, Fixed):
            self.m.guards.add(first, Is(real))
        else:
            self.m.guards.add(source, SameAs(first))

    def object(self, real: Any) -> Value:
        """An object that needs no path: a class attribute under its class's guard, a class, a function of a library."""
        return self.at(real, fixed_source(real))

    def constant(self, real: Any) -> Value:
        """A result computed from constants."""
        kind = type(real)
        if kind in (torch.SymInt, torch.SymBool, torch.SymFloat):
            return SymbolicValue(real)
        if kind is tuple or kind is torch.Size:
            return TupleValue([self.constant(element) for element in real], kind)
        if is_plain(real):
            return Constant(real)
        if kind is list:
            return ListValue([self.constant(element) for element in real])
        if kind is dict:
            return DictValue({key: (self.constant(key), self.constant(value)) for key, value in real.items()})
        if kind in (set, frozenset):
            return SetValue(
                {element: self.constant(element) for element in real}, kind, made=SetRecipe(kind, (tuple(real),))
            )
        if isinstance(
            real, (type, types.FunctionType, types.ModuleType, *BUILTIN_CALLABLES, types.UnionType, *ALIASES)
        ):
            return self.object(real)
        if isinstance(real, types.MappingProxyType):
            return self.constant(dict(real))
        raise Break(f"an object of type {kind.__qualname__}", "it was made while capturing and has no symbolic form")

    def dictionary(self, real: dict, source: Source) -> DictValue:
        known = self.known.get(id(real))
        if known is not None and isinstance(known[0], DictValue):
            self.reached_again(known[0], real, source)
            return known[0]
        if not isinstance(source, (Fixed, InstanceDict)):
            self.m.guards.add(source, TypeIs(type(real)))
        value = DictValue(cls=type(real), source=source, real=real)
        if isinstance(real, collections.defaultdict):
            value.default_factory = self.at(real.default_factory, Attribute(source, "default_factory"))
        self.known[id(real)] = (value, real)
        return value

    def key(self, key: Any, source: Source, index: int) -> Value:
        return Constant(key) if is_plain(key) else self.at(key, DictKey(source, index))

    def globals(self, real: dict) -> DictValue:
        return self.dictionary(real, Fixed(real, str(real.get("__name__", "globals"))))

    def number(self, number: Any) -> Value:
        if isinstance(number, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return SymbolicValue(number)
        return Constant(number)
