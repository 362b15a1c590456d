"""functools.singledispatch: the look-up by class that its wrapper makes, answered from the registry."""

from __future__ import annotations

import functools

from stoker.capture.machine import Machine, PythonFunction
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import Arguments, Value

SINGLE_DISPATCH = functools.singledispatch(lambda value: value).dispatch.__code__


def dispatch_by_class(m: Machine, function: PythonFunction, args: Arguments) -> Value:
    """`dispatch(cls)`; every entry of the registry is guarded."""
    cells = dict(zip(function.code.co_freevars, function.closure(m)))
    registry = cells["registry"].get(m)
    assert isinstance(registry, DictValue) and function.real is not None
    registry.load_all(m)
    (cls,) = args
    assert isinstance(cls, ClassValue)
    return m.wrap.object(m.concrete.run(function.real, cls.real))
