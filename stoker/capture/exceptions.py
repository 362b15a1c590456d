"""Exceptions of the captured program: raising them, what is being handled, what escapes a generator."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, NoReturn

from stoker.capture.frame import Frame
from stoker.capture.polyfill import groups
from stoker.capture.static import name_in_c
from stoker.capture.values.constant import Constant
from stoker.capture.values.group import GroupValue
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.value import Arguments, Keywords, NotConstant, Value
from stoker.errors import Break, Raised

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
        """An exception as C code makes it."""
        return ExceptionValue(cls, [a if isinstance(a, Value) else Constant(a) for a in args])

    def new(self, cls: type[BaseException], args: Arguments, kwargs: Keywords) -> ExceptionValue:
        """What `__new__` of an exception class makes."""
        if issubclass(cls, BaseExceptionGroup):
            return self.new_group(cls, args)
        if issubclass(cls, OSError) and len(args) > 1:
            raise Break(
                f"construction of {cls.__qualname__}", "an OSError takes fields from its arguments, and its class too"
            )
        made = ExceptionValue(cls, list(args))
        if kwargs and not isinstance(self.m.attributes.class_lookup(cls, "__init__"), types.FunctionType):
            self.m.concrete.run(lambda: cls("", **dict.fromkeys(kwargs)))  # raises, if it takes no such fields
            made.fields |= kwargs
        return made

    def new_group(self, cls: type[BaseExceptionGroup], args: Arguments) -> ExceptionValue:
        if len(args) != 2:
            self.m.concrete.run(BaseExceptionGroup, *[None] * len(args))  # raises, in its own words
        chosen = self.m.wrap.object(groups.class_of_group).call(self.m, [self.m.wrap.object(cls), *args], {})
        return GroupValue(chosen.constant(), list(args), args[1].items_list(self.m))

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
        if not issubclass(value.python_type(), StopIteration):
            return value
        error = self.make(RuntimeError, "generator raised StopIteration")
        for name, link in {"__cause__": value, "__context__": value, "__suppress_context__": Constant(True)}.items():
            error.link(self.m, name, link)
        return error
