"""types.SimpleNamespace: attributes and nothing else."""

from __future__ import annotations

import types

from stoker.capture.handlers import STORAGE, on_object
from stoker.capture.machine import Machine
from stoker.capture.polyfill import namespace
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ObjectValue
from stoker.capture.values.value import Value

STORAGE[types.SimpleNamespace] = lambda m, owner, args, kwargs: None


@on_object(types.SimpleNamespace.__init__)
def init(m: Machine, value: Value, **fields: Value) -> Value:
    attributes = value.attributes(m) if isinstance(value, ObjectValue) else None
    assert attributes is not None
    for name, field in fields.items():
        attributes.store(m, Constant(name), field)
    return Constant(None)


@on_object(types.SimpleNamespace.__repr__)
def represent(m: Machine, value: Value) -> Value:
    return m.wrap.object(namespace.represent).call(m, [value], {})


@on_object(types.SimpleNamespace.__eq__)
def equal(m: Machine, value: Value, other: Value) -> Value:
    return m.wrap.object(namespace.equal).call(m, [value, other], {})


@on_object(types.SimpleNamespace.__ne__)
def differ(m: Machine, value: Value, other: Value) -> Value:
    found = equal(m, value, other)
    same = isinstance(found, Constant) and found.value is NotImplemented
    return found if same else m.operators.not_(found)
