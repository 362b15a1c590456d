"""Signatures of functions: facts about functions that may be given other defaults, annotations or code."""

from __future__ import annotations

import inspect
import types
from typing import Any

from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.values.function import MethodValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.guard import DictKeys, Is, LacksKey
from stoker.guard.source import Attribute, DictItem, Fixed, Source


@handles(inspect.signature)
def signature(m: Machine, function: Value) -> Value:
    """The signature of a function that existed before is a fact about it."""
    real = m.operators.real_callable(function)
    if real is None:
        raise Break("inspect.signature()", f"{function.describe()} was made by the captured code")
    found = m.concrete.run(inspect.signature, real)
    if isinstance(function, MethodValue):  # bound to many objects, it is one function
        function, real = function.function, real.__func__
    m.guards.identity(function)
    _guard(m, Fixed(real, "the function"), real)
    return m.wrap.at(found, Fixed(found, "signature", snapshot=True))


def _guard(m: Machine, place: Source, function: Any) -> None:
    """That what a signature is made of stays: of functions, each part; of anything else, the signature's text."""
    if not isinstance(function, types.FunctionType):
        m.guards.ask(place, function, lambda now: str(inspect.signature(now)), "has the same signature")
        return
    for name in ("__code__", "__defaults__"):
        m.guards.add(Attribute(place, name), Is(getattr(function, name)))
    for name in ("__kwdefaults__", "__annotations__"):
        _guard_entries(m, Attribute(place, name), getattr(function, name))
    others = Attribute(place, "__dict__")
    for name in ("__signature__", "__text_signature__", "__wrapped__"):
        if name not in vars(function):
            m.guards.add(others, LacksKey(name))
            continue
        m.guards.add(DictItem(others, name), Is(vars(function)[name]))
        if name == "__wrapped__":
            _guard(m, DictItem(others, name), vars(function)[name])


def _guard_entries(m: Machine, place: Source, entries: dict[str, Any] | None) -> None:
    if entries is None:
        m.guards.add(place, Is(None))
        return
    m.guards.add(place, DictKeys(tuple(entries)))
    for key, value in entries.items():
        m.guards.add(DictItem(place, key), Is(value))
