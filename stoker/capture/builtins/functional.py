"""functools and operator, the parts written in C."""

from __future__ import annotations

import _collections
import functools
import operator
import types
import weakref
from typing import Any

from stoker.capture.handlers import STORAGE, handles, on_object
from stoker.capture.machine import Emitting, Machine
from stoker.capture.polyfill import counting, folding
from stoker.capture.values import remembered
from stoker.capture.values.cached import made_here
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import MethodValue, PartialValue
from stoker.capture.values.getter import GetterValue
from stoker.capture.values.reference import reference_to
from stoker.capture.values.value import Arguments, Keywords, Value

NONE = Constant(None)
ENTERED = {
    functools.reduce: folding.reduce,
    _collections._count_elements: counting.count_elements,
    operator.countOf: counting.count_of,
    operator.indexOf: counting.index_of,
}


def _enters(polyfill: Any) -> Any:
    return lambda m, *args, **kwargs: m.wrap.object(polyfill).call(m, list(args), kwargs)


for _original, _polyfill in ENTERED.items():
    handles(_original)(_enters(_polyfill))


@handles(functools.cmp_to_key)
def cmp_to_key(m: Machine, mycmp: Value) -> Value:
    return KeyMaker(m.wrap.object(folding.Ranked), [mycmp], {})


class KeyMaker(PartialValue):
    """What `cmp_to_key(compare)` gives. Capture enters its comparisons; what leaves captured code is CPython's."""

    def python_type(self) -> type:
        return type(functools.cmp_to_key(int))

    def attribute(self, m: Machine, name: str) -> Value:
        self.unsupported(f"attribute {name!r}")

    def emit(self, e: Emitting) -> None:
        e.call_function(functools.cmp_to_key, self.args)


def _getter(kind: type) -> None:
    def handler(m: Machine, *args: Value, **kwargs: Value) -> Value:
        return GetterValue(kind, list(args), dict(kwargs))

    handles(kind)(handler)


_getter(operator.itemgetter)
_getter(operator.attrgetter)
_getter(operator.methodcaller)


@handles(operator.setitem)
def setitem(m: Machine, container: Value, key: Value, value: Value) -> Value:
    container.set_item(m, key, value)
    return NONE


@handles(operator.delitem)
def delitem(m: Machine, container: Value, key: Value) -> Value:
    container.delete_item(m, key)
    return NONE


@handles(operator.concat)
def concat(m: Machine, left: Value, right: Value) -> Value:
    return m.operators.binary("+", left, right)


@handles(operator.iconcat)
def iconcat(m: Machine, left: Value, right: Value) -> Value:
    return m.operators.binary("+=", left, right)


@handles(operator.length_hint)
def length_hint(m: Machine, value: Value, default: Value = Constant(0)) -> Value:  # noqa: B008
    return value.length(m) if hasattr(value.python_type(), "__len__") else value.unsupported("operator.length_hint()")


if hasattr(operator, "call"):

    @handles(operator.call)
    def call(m: Machine, function: Value, /, *args: Value, **kwargs: Value) -> Value:
        return function.call(m, list(args), kwargs)


@on_object(types.FunctionType.__get__)
def bind_function(m: Machine, function: Value, receiver: Value, owner: Value = NONE) -> Value:
    if isinstance(receiver, Constant) and receiver.value is None:
        return function
    return MethodValue(receiver, function)


handles(remembered.Cached)(made_here)


@handles(weakref.ref)
def reference(m: Machine, value: Value, callback: Value = NONE) -> Value:
    return reference_to(m, value, callback)


def _new_reference(m: Machine, cls: type, args: Arguments, kwargs: Keywords) -> Value:
    return reference_to(m, args[0], args[1] if len(args) > 1 else NONE, is_plain=False)


STORAGE[weakref.ref] = _new_reference


@on_object(weakref.ref.__init__)
def init_reference(m: Machine, reference: Value, value: Value, callback: Value = NONE) -> Value:
    return NONE
