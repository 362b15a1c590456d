"""print, warnings and logging: calls that only show something wait until the graph has run, in order.

What is shown is made into text at once, so that later changes do not show; text of a tensor is a break.
"""

from __future__ import annotations

import builtins
import io
import logging
import re
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stoker.capture.frame import Frame
from stoker.capture.handlers import handles, on_object
from stoker.capture.machine import Emitting, Machine
from stoker.capture.policy import POLYFILL
from stoker.capture.static import static_lookup
from stoker.capture.values.buffer import BufferValue
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import TextValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.guard import Holds
from stoker.guard.source import Fixed

NONE, ONE = Constant(None), Constant(1)


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
    if any(not isinstance(value, (Constant, BufferValue)) and not _is_stream(value) for value in kwargs.values()):
        raise Break(
            "print()", "it is told where to print by an object that is neither plain data nor a stream from outside"
        )
    for name in ("sep", "end"):
        given = m.concrete.constant(kwargs.get(name, NONE), "print()")
        if given is not None and not isinstance(given, str):
            m.exceptions.raise_(TypeError, f"{name} must be None or a string, not {type(given).__name__}")
    buffer = kwargs.get("file") if "file" in kwargs else _replaced_stdout(m)
    if isinstance(buffer, BufferValue):
        given = {name: m.concrete.constant(value, "print()") for name, value in kwargs.items() if name != "file"}
        texts = [m.concrete.constant(_text(m, value), "print()") for value in args]
        m.effects.will_mutate(buffer)
        print(*texts, **given, file=buffer.contents)
        return NONE
    m.effects.defer(BuiltinValue(builtins.print), [_text(m, value) for value in args], kwargs)
    return NONE


def _replaced_stdout(m: Machine) -> Value | None:
    """The buffer that captured code put in the place of sys.stdout; None if that is what it was."""
    attributes = m.wrap.globals(vars(sys))
    if id(attributes) not in m.effects.mutated:
        return None
    found = attributes.lookup(m, Constant("stdout"))
    if isinstance(found, BufferValue):
        return found
    if getattr(found, "real", None) is not sys.stdout or found is None or found.source is None:
        raise Break("print()", "the captured code replaced sys.stdout or another attribute of sys")
    return None


@handles(io.StringIO)
def string_io(m: Machine, *args: Value, **kwargs: Value) -> Value:
    if kwargs:
        raise Break("io.StringIO()", "it is told how to treat the ends of lines")
    return BufferValue(m.concrete.run(io.StringIO, *(m.concrete.constant(text, "io.StringIO()") for text in args)))


def _is_stream(value: Value) -> bool:
    """A stream of text from outside whose methods are written in C: they do nothing but write."""
    cls = value.python_type()
    in_c = all(not isinstance(static_lookup(cls, name), types.FunctionType) for name in ("write", "flush"))
    return value.source is not None and issubclass(cls, io.TextIOBase) and in_c


@on_object(io.StringIO.write, io.TextIOWrapper.write)
def write(m: Machine, stream: Value, text: Value) -> Value:
    if isinstance(stream, BufferValue):
        return stream.method_write(m, text)
    told = m.concrete.constant(text, "write()")
    if not _is_stream(stream) or not isinstance(told, str):
        stream.unsupported("method 'write'")
    cls: Any = stream.python_type()
    m.effects.defer(BuiltinValue(cls.write), [stream, Constant(told)], {})
    return Constant(len(told))


@on_object(*{io.StringIO.flush, io.TextIOWrapper.flush})
def flush(m: Machine, stream: Value) -> Value:
    if isinstance(stream, BufferValue):
        return NONE
    if not _is_stream(stream):
        stream.unsupported("method 'flush'")
    cls: Any = stream.python_type()
    m.effects.defer(BuiltinValue(cls.flush), [stream], {})
    return NONE


@dataclass(frozen=True)
class WarnedLine:
    """The line of the program that a warning is told of."""

    filename: str
    line: int
    module: str

    def raises(self, category: type[Warning], text: str) -> bool:
        """Is such a warning raised, by the filters as they are?"""
        return next(
            (action == "error" for action, words in self.filters(category) if words is None or words.match(text)), False
        )

    def may_raise(self, category: type[Warning]) -> bool:
        """Is such a warning raised, whatever its text?"""
        return any(action == "error" for action, _ in self.filters(category))

    def filters(self, category: type[Warning]) -> Iterator[tuple[str, re.Pattern[str] | None]]:
        """What is done with such warnings, and with which texts, first rule first."""
        for action, message, family, module, line in warnings.filters:
            fits = issubclass(category, family) and line in (0, self.line)
            if fits and (module is None or module.match(self.module)):
                yield action, message

    def warn(self, text: str, category: type[Warning], surroundings: dict[str, Any]) -> None:
        registry = surroundings.setdefault("__warningregistry__", {})
        warnings.warn_explicit(text, category, self.filename, self.line, self.module, registry)


@handles(warnings.warn)
def warn(m: Machine, message: Value, category: Value = NONE, stacklevel: Value = ONE, source: Value = NONE) -> Value:
    """Told after the graph, of the line that eager tells it of. Where warnings are errors, eager raises them."""
    level = m.concrete.constant(stacklevel, "warnings.warn()")
    if not isinstance(message, TextValue):
        message = Constant(m.concrete.constant(message, "warnings.warn()"))
    kind: Any = UserWarning if _is_none(category) else category.real if isinstance(category, ClassValue) else object
    plain = message.python_type() is str and isinstance(level, int) and issubclass(kind, Warning) and _is_none(source)
    if id(m.wrap.globals(vars(warnings))) in m.effects.mutated:
        raise Break("warnings.warn()", "the filters of warnings, or what shows them, were changed before it")
    if not plain:
        raise Break("warnings.warn()", "it is told more than a text, a class of warnings and how far up its line is")
    frame = _frame_above(m, level)
    module = m.concrete.constant(frame.globals.item(m, Constant("__name__")), "a module's name")
    place = WarnedLine(frame.code.co_filename, frame.line, module)
    if _raises(m, place, kind, message):
        raise Break("warnings.warn()", "warnings like this one are raised as errors")
    m.effects.defer(BuiltinValue(place.warn), [message, m.wrap.object(kind), frame.globals], {})
    return NONE


class Filters(Value):
    """What C remembers of the filters of warnings, which are a list of a Python module."""

    written_last = True
    source = Fixed(warnings, "warnings")

    def python_type(self) -> type:
        return list

    def write_back(self, e: Emitting) -> None:
        """Forget it, once the list is written back."""
        e.call_function(FILTERS_MUTATED, [])
        e.pop()


FILTERS = Filters()
FILTERS_MUTATED: Any = warnings._filters_mutated  # type: ignore[attr-defined]  # of the standard library, not in its stubs


@handles(FILTERS_MUTATED)
def filters_mutated(m: Machine) -> Value:
    m.effects.will_mutate(FILTERS)
    return NONE


def _raises(m: Machine, place: WarnedLine, kind: type[Warning], message: Value) -> bool:
    """Is a warning an error? Of one whose text varies that is asked of all texts first."""
    words = f"do not raise a {kind.__name__} at {place.filename}:{place.line}"
    place_of_filters = Fixed(warnings, "warnings")
    if isinstance(message, TextValue) and not m.guards.ask(
        place_of_filters, warnings, lambda _: place.may_raise(kind), f"{words}, whatever it says"
    ):
        return False
    told = m.concrete.constant(message, "warnings.warn()")
    return m.guards.ask(place_of_filters, warnings, lambda _: place.raises(kind, told), words)


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None


def _frame_above(m: Machine, level: int) -> Frame:
    """The frame so many calls up. Our own frames stand for functions of C, which have none."""
    frame: Frame | None = m.current
    while frame is not None:
        level -= not frame.code.co_filename.startswith(POLYFILL)
        if level <= 0:
            return frame
        frame = frame.parent
    raise Break("warnings.warn()", "its line is in a caller of the captured function")


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
