"""Signatures of functions: facts about functions that may be given other defaults, annotations or code."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from stoker.capture.handlers import handles
from stoker.capture.values.function import MethodValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.source import Fixed

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


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
    m.guards.ask(Fixed(real, "the function"), real, _signature_facts, "has the same signature")
    return m.wrap.at(found, Fixed(found, "signature", snapshot=True))


def _signature_facts(function: Any) -> list[Any]:
    """What a signature is made of: of functions, which are asked before each run, without making it."""
    facts: list[Any] = []
    while isinstance(function, types.FunctionType):
        names = vars(function)
        facts += [function.__code__, function.__defaults__, function.__kwdefaults__ and dict(function.__kwdefaults__)]
        facts += [dict(function.__annotations__), names.get("__signature__"), names.get("__text_signature__")]
        function = names.get("__wrapped__")
    return facts if function is None else [*facts, str(inspect.signature(function))]
