"""Exceptions and exception groups: their methods written in C, and what is being handled."""

from __future__ import annotations

import sys

from stoker.capture.handlers import EXCEPTION_METHODS, handles, on_object
from stoker.capture.machine import Machine
from stoker.capture.polyfill import groups
from stoker.capture.static import HEAP_TYPE
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.value import Value
from stoker.guard.guard import Holds

NONE = Constant(None)


@on_object(BaseException.__init__)
def exception_init(m: Machine, value: Value, *args: Value, **kwargs: Value) -> Value:
    if isinstance(value, ExceptionValue):
        value.set_args(m, list(args))
    return NONE


@on_object(BaseException.__str__)
def exception_str(m: Machine, value: Value) -> Value:
    args = value.attribute(m, "args").items_list(m)
    if len(args) == 1:
        return m.wrap.object(str).call(m, args, {})
    return Constant(str(m.concrete.plain(TupleValue(args), "str()")) if args else "")


@on_object(*{cls.__str__ for cls in (OSError, UnicodeDecodeError, UnicodeEncodeError, SyntaxError, ImportError)})
def own_str(m: Machine, value: Value) -> Value:
    """Exceptions written in C that show their fields: ask a real one."""
    assert isinstance(value, ExceptionValue)
    if value.real is not None and value.source is not None:
        text = str(value.real)
        m.guards.add(value.source, Holds(lambda now: str(now) == text, f"shows as {text!r}"))
        return Constant(text)
    base = next(cls for cls in value.cls.__mro__ if not cls.__flags__ & HEAP_TYPE)
    args = [m.concrete.plain(a, "str()") for a in value.attribute(m, "args").items_list(m)]
    return Constant(m.concrete.run(lambda: str(base(*args))))


@on_object(BaseExceptionGroup.__str__)
def group_str(m: Machine, value: Value) -> Value:
    count = m.concrete.constant(value.attribute(m, "exceptions").length(m), "str()")
    message = m.concrete.constant(value.attribute(m, "message"), "str()")
    return Constant(f"{message} ({count} sub-exception{'s' if count > 1 else ''})")


@on_object(BaseExceptionGroup.split)
def group_split(m: Machine, value: Value, wanted: Value) -> Value:
    return m.wrap.object(groups.split).call(m, [value, wanted], {})


@on_object(BaseExceptionGroup.subgroup)
def group_subgroup(m: Machine, value: Value, wanted: Value) -> Value:
    return m.wrap.object(groups.subgroup).call(m, [value, wanted], {})


@on_object(BaseExceptionGroup.derive)
def group_derive(m: Machine, value: Value, members: Value) -> Value:
    return m.wrap.object(groups.derive).call(m, [value, members], {})


@on_object(KeyError.__str__)
def key_error_str(m: Machine, value: Value) -> Value:
    args = value.attribute(m, "args").items_list(m)
    if len(args) == 1:
        return m.wrap.object(repr).call(m, args, {})
    return exception_str(m, value)


@on_object(BaseException.__repr__)
def exception_repr(m: Machine, value: Value) -> Value:
    args = [repr(m.concrete.plain(a, "repr()")) for a in value.attribute(m, "args").items_list(m)]
    return Constant(f"{value.python_type().__name__}({', '.join(args)})")


@on_object(BaseException.add_note)
def add_note(m: Machine, value: Value, note: Value) -> Value:
    if not m.operators.has_attribute(value, "__notes__"):
        value.set_attribute(m, "__notes__", ListValue([]))
    return value.attribute(m, "__notes__").attribute(m, "append").call(m, [note], {})


@on_object(BaseException.with_traceback)
def with_traceback(m: Machine, value: Value, trace: Value) -> Value:
    value.set_attribute(m, "__traceback__", trace)
    return value


EXCEPTION_METHODS.update(__init__=exception_init, __str__=exception_str, __repr__=exception_repr)


@handles(sys.exception)
def current_exception(m: Machine) -> Value:
    return m.exceptions.current() or NONE


@handles(sys.exc_info)
def exc_info(m: Machine) -> Value:
    error = m.exceptions.current()
    if error is None:
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([m.wrap.object(error.python_type()), error, error.attribute(m, "__traceback__")])
