"""Exceptions of the captured program: raising them, what is being handled, what escapes a generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from stoker.capture.frame import Frame
from stoker.capture.static import name_in_c
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.value import NotConstant, Value
from stoker.errors import Raised

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


class Exceptions:
    """Raised where CPython raises, with its words."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def raise_(self, cls: type[BaseException], *args: Any, **fields: Any) -> NoReturn:
        """What C code raises: `fields` are those that it fills behind the constructor's back."""
        error = self.make(cls, *args)
        error.fields |= {name: Constant(field) for name, field in fields.items()}
        raise Raised(error)

    def no_attribute(self, cls: type, name: str) -> NoReturn:
        self.raise_(AttributeError, f"'{name_in_c(cls)}' object has no attribute '{name}'")

    def make(self, cls: type[BaseException], *args: Any) -> ExceptionValue:
        return ExceptionValue(cls, [a if isinstance(a, Value) else Constant(a) for a in args])

    def as_exception(self, value: Value) -> Value:
        """What `raise value` raises: a class is called."""
        try:
            found = value.constant()
        except NotConstant:
            found = None
        if isinstance(found, type) and issubclass(found, BaseException):
            return value.call(self.m, [], {})
        if not issubclass(value.python_type(), BaseException):
            self.raise_(TypeError, "exceptions must derive from BaseException")
        return value

    def as_cause(self, value: Value) -> Value:
        return value if isinstance(value, Constant) and value.value is None else self.as_exception(value)

    def current(self) -> Value | None:
        frame: Frame | None = self.m.current
        while frame is not None:
            if frame.handled:
                return frame.handled[-1]
            frame = frame.parent
        return None

    def stop_iteration(self, iterator: Value) -> NoReturn:
        """The end of an iterator, as an exception: a generator's carries what it returned."""
        result = iterator.take_result() if isinstance(iterator, GeneratorValue) else None
        self.raise_(StopIteration, *([] if result is None else [result]))

    def of_generator(self, value: Value) -> Value:
        """A generator that lets StopIteration escape raises RuntimeError (PEP 479)."""
        if issubclass(value.python_type(), StopIteration):
            return self.make(RuntimeError, "generator raised StopIteration")
        return value
