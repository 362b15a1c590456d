"""print and logging: calls that only show something wait until the graph has run, in order.

What is shown is made into text at once, so that later changes do not show; text of a tensor is a break.
"""

from __future__ import annotations

import builtins
import io
import logging
import sys
import types
from typing import TYPE_CHECKING, Any

from stoker.capture.handlers import handles, on_object
from stoker.capture.static import static_lookup
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.guard import Holds

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

NONE = Constant(None)


def _text(m: Machine, value: Value) -> Value:
    if isinstance(value, TensorValue):
        raise Break(
            "print()",
            f"it prints {value.describe()}, which is known only when the graph has run",
            "print outside the compiled function, or accept the break",
        )
    return m.wrap.object(str).call(m, [value], {})


@handles(print)
def print_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    if any(not isinstance(value, Constant) and not _is_stream(value) for value in kwargs.values()):
        raise Break(
            "print()", "it is told where to print by an object that is neither plain data nor a stream from outside"
        )
    for name in ("sep", "end"):
        given = m.concrete.constant(kwargs.get(name, NONE), "print()")
        if given is not None and not isinstance(given, str):
            m.exceptions.raise_(TypeError, f"{name} must be None or a string, not {type(given).__name__}")
    _refuse_replaced(m)
    m.effects.defer(BuiltinValue(builtins.print), [_text(m, value) for value in args], kwargs)
    return NONE


def _refuse_replaced(m: Machine) -> None:
    if id(m.wrap.globals(vars(sys))) in m.effects.mutated:
        raise Break("print()", "the captured code replaced sys.stdout or another attribute of sys")


def _is_stream(value: Value) -> bool:
    """A stream of text from outside whose methods are written in C: they do nothing but write."""
    cls = value.python_type()
    in_c = all(not isinstance(static_lookup(cls, name), types.FunctionType) for name in ("write", "flush"))
    return value.source is not None and issubclass(cls, io.TextIOBase) and in_c


@on_object(io.StringIO.write, io.TextIOWrapper.write)
def write(m: Machine, stream: Value, text: Value) -> Value:
    told = m.concrete.constant(text, "write()")
    if not _is_stream(stream) or not isinstance(told, str):
        stream.unsupported("method 'write'")
    _refuse_replaced(m)
    cls: Any = stream.python_type()
    m.effects.defer(BuiltinValue(cls.write), [stream, Constant(told)], {})
    return Constant(len(told))


@on_object(*{io.StringIO.flush, io.TextIOWrapper.flush})
def flush(m: Machine, stream: Value) -> Value:
    if not _is_stream(stream):
        stream.unsupported("method 'flush'")
    cls: Any = stream.python_type()
    m.effects.defer(BuiltinValue(cls.flush), [stream], {})
    return NONE


LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


def _logs(method: Any, level: int) -> None:
    def handler(m: Machine, logger: Value, *args: Value, **kwargs: Value) -> Value:
        real = getattr(logger, "real", None)
        if not isinstance(real, logging.Logger) or logger.source is None:
            logger.unsupported("logging")
        heard = real.isEnabledFor(level)
        m.guards.add(
            logger.source, Holds(lambda now: now.isEnabledFor(level) == heard, f"hears level {level}: {heard}")
        )
        if heard:
            raise Break(
                "logging", f"the logger {real.name!r} hears this message", "raise its level, or accept the break"
            )
        return NONE

    handles(method)(handler)


@handles(logging.getLogger)
def get_logger(m: Machine, name: Value = NONE) -> Value:
    return m.wrap.object(m.concrete.run(logging.getLogger, m.concrete.constant(name, "a logger's name")))


for _name, _level in LEVELS.items():
    _logs(getattr(logging.Logger, _name), _level)
