"""Exceptions of the captured program: raising them, what is being handled, what escapes a generator."""

from __future__ import annotations

import types
from types import NoneType
from typing import Any, NoReturn

from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.polyfill import groups
from stoker.capture.static import name_in_c
from stoker.capture.values.constant import Constant
from stoker.capture.values.group import GroupValue
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.value import Arguments, Keywords, NotConstant, Value
from stoker.errors import Break, Raised

FIELDS: dict[str, tuple[Any, str]] = {
    "__cause__": ((BaseException, NoneType), "exception cause must be None or derive from BaseException"),
    "__context__": ((BaseException, NoneType), "exception context must be None or derive from BaseException"),
    "__traceback__": ((types.TracebackType, NoneType), "__traceback__ must be a traceback or None"),
    "__suppress_context__": (bool, "attribute value type must be bool"),
}
"""What the fields of an exception take, and CPython's words for anything else."""

FILLED_BY_CONSTRUCTOR = (UnicodeEncodeError, UnicodeDecodeError, UnicodeTranslateError, SyntaxError)


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
        if issubclass(cls, FILLED_BY_CONSTRUCTOR) and len(args) != 1:
            raise Break(f"construction of {cls.__qualname__}", "it checks its arguments and takes fields from them")
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

    def set_field(self, error: ExceptionValue, name: str, new: Value) -> None:
        """A field that every exception has is set: CPython looks at what it is set to."""
        if name == "args":
            error.set_args(self.m, new.items_list(self.m))
            return
        wanted, words = FIELDS[name]
        if not issubclass(new.python_type(), wanted):
            self.raise_(TypeError, words)
        error.link(self.m, name, new)
        if name == "__cause__":
            error.link(self.m, "__suppress_context__", Constant(True))

    def set_context(self, error: ExceptionValue, handled: Value) -> None:
        """What was being handled when this was raised. Where that came of this one, the chain is cut there."""
        if handled is error:
            return
        above: Value = handled
        seen: list[Value] = []
        while isinstance(above, ExceptionValue) and above not in seen:
            seen.append(above)
            context = above.attribute(self.m, "__context__")
            if context is error:
                above.link(self.m, "__context__", Constant(None))
            above = context
        error.link(self.m, "__context__", handled)

    def as_exception(self, value: Value, words: str = "exceptions must derive from BaseException") -> Value:
        """What `raise value` raises: a class is called."""
        try:
            found = value.constant()
        except NotConstant:
            found = None
        if isinstance(found, type) and issubclass(found, BaseException):
            made = value.call(self.m, [], {})
            if not issubclass(made.python_type(), BaseException):
                kinds = found, made.python_type()
                self.raise_(
                    TypeError, "calling {} should have returned an instance of BaseException, not {}".format(*kinds)
                )
            return made
        if not issubclass(value.python_type(), BaseException):
            self.raise_(TypeError, words)
        return value

    def as_cause(self, value: Value) -> Value:
        if isinstance(value, Constant) and value.value is None:
            return value
        return self.as_exception(value, "exception causes must derive from BaseException")

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
