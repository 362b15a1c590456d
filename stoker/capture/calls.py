"""Calls: entering Python functions, resuming generators, making instances, and what is not entered.

In:  a callable and the Values it is called with.
Out: the Value it gives. A function that policy keeps out of graphs is never entered: the call breaks, with the reason.
"""

from __future__ import annotations

import enum
import functools
import inspect
import logging
import threading
import types
import warnings
from typing import Any

import numpy
import torch
from torch.profiler import record_function

from stoker import torch_private
from stoker.capture import handlers
from stoker.capture.binding import bind_arguments
from stoker.capture.frame import Frame, program_of
from stoker.capture.machine import Machine, PythonFunction
from stoker.capture.polyfill import counting
from stoker.capture.python_operators import IN_PLACE_METHODS
from stoker.capture.single_dispatch import SINGLE_DISPATCH, dispatch_by_class
from stoker.capture.static import derives
from stoker.capture.values.ambient import ThreadLocalValue
from stoker.capture.values.array import BY_FUNCTION, ArrayValue
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.module import ModuleValue
from stoker.capture.values.sequence import SequenceValue, TupleValue, is_plain_tuple
from stoker.capture.values.subclass import into_class, is_captured_class
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import settled
from stoker.capture.values.value import Arguments, Exhausted, Keywords, Value
from stoker.capture.warned import Warns
from stoker.errors import Break, Raised, SkipFrame

NUMPY_FUNCTIONS = (numpy.ufunc, type(numpy.prod))
GENERATOR = inspect.CO_GENERATOR
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
MAXIMUM_DEPTH = 200
AFTER_YIELD_FROM = 2  # RESUME's argument
LOGGING = tuple(getattr(logging.Logger, name) for name in ("debug", "info", "warning", "warn", "error", "critical"))
KEEPS_TEXT = frozenset(
    map(
        id,
        (print, str, repr, format, isinstance, type, warnings.warn, torch_private.assert_, record_function, *LOGGING),
    )
)
"""Functions that are not entered, and do not look at the text that they are given."""


class Calls:
    """Entering and resuming frames, calling what is not entered, making instances."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.depth = 0
        self.abandoned: list[Frame] = []  # of generators that went out of reach while they waited inside `try`

    def function(self, function: PythonFunction, args: Arguments, kwargs: Keywords) -> Value:
        """A Python function: a special handler, a graph node, or entered."""
        real = function.real
        if real is not None:
            if (
                self.m.overrides.active
                and self.m.policy.is_graph_function(real)
                and self.m.overrides.intercepts(args, kwargs)
            ):
                return self.inline(function, args, kwargs)
            handler = handlers.handler_for(real)
            try:
                if handler is not None:
                    return handler(self.m, *self.as_taken(real, args, kwargs))
                if self.m.policy.is_graph_function(real):
                    return self.m.record.call(real, args, kwargs)
            except Warns:
                return self.inline(function, args, kwargs)
            if function.code is SINGLE_DISPATCH:
                return dispatch_by_class(self.m, function, args)
            if function.code is torch_private.WITHHELD and self.m.policy.enters_withheld(real.__wrapped__):
                return self.m.wrap.object(real.__wrapped__).call(self.m, args, kwargs)
            if (beneath := self.m.policy.beneath(real)) is not None:
                return self.m.wrap.object(beneath).call(self.m, args, kwargs)
            refusal = self.m.policy.refuse_inline(real)
            if refusal is not None:
                raise Break(f"a call of `{real.__qualname__}`", refusal)
        return self.inline(function, args, kwargs)

    def inline(self, function: PythonFunction, args: Arguments, kwargs: Keywords) -> Value:
        code = function.code
        if code.co_flags & ASYNC:
            raise Break(f"a call of `{code.co_qualname}`", "async functions are not captured")
        if self.depth >= MAXIMUM_DEPTH:
            raise Break(f"a call of `{code.co_qualname}`", f"calls are nested more than {MAXIMUM_DEPTH} deep")
        frame = Frame(program_of(code), function.globals, self.m.current)
        frame.locals = bind_arguments(self.m, function, args, kwargs)
        for name, cell in zip(code.co_freevars, function.closure(self.m), strict=True):
            frame.cells[name] = cell
        if code.co_flags & GENERATOR:
            return GeneratorValue(frame, self.abandoned)
        return self.run(frame)

    def run(self, frame: Frame) -> Value:
        caller, self.m.current = self.m.current, frame
        self.depth += 1
        try:
            outcome = self.m.run(frame)
        finally:
            self.depth -= 1
            self.m.current = caller
        assert outcome is not None
        return outcome

    def resume(
        self, frame: Frame, started: bool, sent: Value | None, raised: Raised | None
    ) -> tuple[Value | None, Value | None]:
        """Run a generator's frame to its next yield: what it yields, or None and what it returns."""
        caller, self.m.current = self.m.current, frame
        frame.parent = caller
        self.depth += 1
        try:
            if raised is not None and not started:
                raise raised
            if raised is not None:
                yielded = self.throw_into(frame, raised)
                if yielded is not None:
                    return yielded, None
            elif started:
                frame.push(sent if sent is not None else Constant(None))
            frame.yielded = None
            result = self.m.run(frame)
        finally:
            self.depth -= 1
            self.m.current = caller
            frame.parent = None
        return (frame.yielded, None) if frame.yielded is not None else (None, result)

    def close_abandoned(self) -> None:
        """Run what is left of generators that went out of reach while they waited inside `try`."""
        while self.abandoned:
            generator = GeneratorValue(self.abandoned.pop(), [])
            generator.started = True
            generator.method_close(self.m)

    def throw_into(self, frame: Frame, raised: Raised) -> Value | None:
        """Raise at the yield where a frame waits, or first in the iterator that its `yield from` waits for."""
        waits = frame.instructions[frame.position]
        if (
            waits.name == "RESUME"
            and waits.value & 3 == AFTER_YIELD_FROM
            and isinstance(frame.stack[-1], GeneratorValue)
        ):
            inner, send = frame.stack[-1], frame.instructions[frame.position - 2]
            assert send.name == "SEND"
            try:
                if issubclass(raised.value.python_type(), GeneratorExit):
                    inner.method_close(self.m)
                else:
                    return inner.resume(self.m, None, raised)
            except Exhausted:
                frame.finish_send(inner.take_result() or Constant(None))
                frame.jump(send.value)
                return None
            except Raised as other:
                raised = other
        self.m.unwind(frame, frame.instructions[frame.position - 1], raised)
        return None

    def builtin(self, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """A callable that is not a Python function: a built-in, an operator of torch, a descriptor."""
        if self.m.overrides.active:
            found = self.m.overrides.call(real, args, kwargs)
            if found is not None:
                return found
        args, kwargs = self.as_taken(real, args, kwargs)
        handler = handlers.handler_for(real)
        if handler is not None:
            return handler(self.m, args, kwargs)
        if isinstance(real, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self.descriptor(real, args, kwargs)
        if isinstance(real, types.ClassMethodDescriptorType) and args and isinstance(args[0], ClassValue):
            return self.class_method(args[0].real, real, args[1:], kwargs)
        if isinstance(real, torch_private.CustomOpDef):
            return self.m.record.call(torch_private.overload_of(real), args, kwargs)
        if self.m.policy.is_graph_function(real):
            return self.m.record.call(real, args, kwargs)
        if isinstance(real, NUMPY_FUNCTIONS):
            return self.m.arrays.call(real, args, kwargs)
        folded = handlers.fold_pure(self.m, real, args, kwargs)
        if folded is not None:
            return folded
        owner = getattr(real, "__self__", None)
        if isinstance(owner, type) and isinstance(real, types.BuiltinMethodType):
            return self.class_builtin(owner, real, args, kwargs)
        raise Break(
            f"a call of {handlers.describe(real)}",
            "it is not Python code and not known to capture",
            "move the call out of the compiled function, or register it with stoker.allow_in_graph if it is a tensor function",
        )

    def as_taken(self, real: Any, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
        """Arguments as a function that is not entered takes them."""
        if id(real) in KEEPS_TEXT:
            return args, kwargs
        return settled(self.m, args), dict(zip(kwargs, settled(self.m, list(kwargs.values()))))

    def descriptor(self, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """`list.append(xs, x)`: an unbound method of a built-in type."""
        if not args:
            self.m.concrete.run(real)  # raises, in its own words
        return self.builtin_method(args[0], real.__name__, args[1:], kwargs, real)

    def getter(self, descriptor: Any, name: str, args: Arguments) -> Value:
        """`torch.Tensor.shape.__get__(x)`: how a `__torch_function__` reads an attribute."""
        if name != "__get__" or not args or not isinstance(args[0], TensorValue):
            raise Break(f"a call of {handlers.describe(descriptor)}", "it is written in C and not known to capture")
        found = self.m.overrides.ask(descriptor.__get__, args, {})
        return found if found is not None else TensorValue.attribute(args[0], self.m, descriptor.__name__)

    def builtin_method(
        self, receiver: Value, name: str, args: Arguments, kwargs: Keywords, descriptor: Any = None
    ) -> Value:
        """A method of a built-in type, on a value of that type or of a subclass."""
        (receiver,) = settled(self.m, [receiver])
        if not isinstance(receiver, SequenceValue):
            args, kwargs = self.as_taken(descriptor, args, kwargs)
        if isinstance(receiver, TensorValue):
            if self.m.overrides.active:
                found = self.m.overrides.method_call(receiver, name, args, kwargs)
                if found is not None:
                    return found
            return handlers.tensor_method(self.m, receiver, name, args, kwargs)
        if isinstance(receiver, BuiltinValue) and isinstance(receiver.real, types.GetSetDescriptorType):
            return self.getter(receiver.real, name, args)
        handler = handlers.object_method(self.m, receiver, name, descriptor)
        if handler is not None:
            return handler(self.m, receiver, args, kwargs)
        if isinstance(receiver, ArrayValue) and name in BY_FUNCTION:
            return self.m.arrays.call(getattr(numpy, name), [receiver, *args], kwargs)
        target = receiver.stored()
        method = getattr(type(target), f"method_{name}", None)
        if method is not None:
            return handlers.apply(self.m, functools.partial(method, target, self.m), method, args, kwargs)
        special = handlers.SPECIAL_METHODS.get(name)
        if special is not None and not isinstance(target, InstanceValue):
            found = handlers.apply(self.m, functools.partial(special, self.m, target), special, args, kwargs)
            return receiver if found is target and name in IN_PLACE_METHODS else found
        if isinstance(target, Constant):
            return handlers.constant_method(self.m, target, name, args, kwargs)
        receiver.unsupported(f"method {name!r}")
        return None

    def class_(self, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`cls(...)`: a constructor the evaluator knows, or `__new__` and `__init__`."""
        handler = handlers.handler_for(cls)
        if handler is not None:
            return handler(self.m, *self.as_taken(cls, args, kwargs))
        if issubclass(cls, enum.Enum):
            return self.m.wrap.object(
                self.m.concrete.run(cls, *(self.m.concrete.constant(a, "an enum's value") for a in args))
            )
        if issubclass(cls, (numpy.generic, numpy.dtype)):
            return self.m.arrays.fold_scalar(cls, args, kwargs)
        meta_call = self.m.attributes.class_lookup(type(cls), "__call__")
        if isinstance(meta_call, types.FunctionType):
            return self.m.attributes.bind(meta_call, self.m.wrap.object(cls), type(cls)).call(self.m, args, kwargs)
        if isinstance(meta_call, type):
            return self.class_(meta_call, args, kwargs)
        return self.construct(cls, args, kwargs)

    def construct(self, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`type.__call__`."""
        new = self.m.attributes.class_lookup(cls, "__new__")
        raw_new = new.__func__ if isinstance(new, staticmethod) else new
        init = self.m.attributes.class_lookup(cls, "__init__")
        if (args or kwargs) and raw_new is object.__new__ and init is object.__init__:
            self.m.exceptions.raise_(TypeError, f"{cls.__name__}() takes no arguments")
        if isinstance(raw_new, types.FunctionType):
            made = self.m.wrap.object(raw_new).call(self.m, [self.m.wrap.object(cls), *args], kwargs)
        else:
            made = self.new_instance(cls, args, kwargs)
        if not derives(made.python_type(), cls):
            return made
        if isinstance(init, types.FunctionType):
            result = self.m.attributes.bind(init, made, cls).call(self.m, args, kwargs)
            if not (isinstance(result, Constant) and result.value is None):
                self.m.exceptions.raise_(
                    TypeError, f"__init__() should return None, not '{result.python_type().__name__}'"
                )
        elif isinstance(made, ExceptionValue):
            if isinstance(raw_new, types.FunctionType):
                made.set_args(self.m, list(args))
        elif init is not object.__init__:
            handlers.builtin_init(self.m, made, init, args, kwargs)
        return made

    def new_instance(self, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`object.__new__` and the constructors of built-in bases."""
        if cls.__flags__ & inspect.TPFLAGS_IS_ABSTRACT:
            self.m.concrete.run(object.__new__, cls)  # raises, with the names of what is abstract
        if isinstance(self.m.attributes.class_lookup(cls, "__del__"), types.FunctionType):
            raise SkipFrame(f"{cls.__qualname__} has a __del__: it must run when the last reference goes, not later")
        if issubclass(cls, BaseException):
            return self.m.exceptions.new(cls, args, kwargs)
        if issubclass(cls, torch.nn.Module):
            return ModuleValue(cls)
        if issubclass(cls, threading.local):
            made = ThreadLocalValue(cls)
            made.made_with = list(args), dict(kwargs)
            return made
        if issubclass(cls, torch.Tensor):
            return self.new_tensor(cls, args, kwargs)
        self.m.overrides.note_class(cls)
        storage = handlers.new_storage(self.m, cls, args, kwargs)
        if storage is handlers.UNKNOWN:
            raise Break(
                f"construction of {cls.__qualname__}", "its base class is written in C and not known to capture"
            )
        if isinstance(storage, TupleValue):
            plain = is_plain_tuple(cls)  # type: ignore[arg-type]  # cached by class
            return storage if plain else InstanceValue(cls, storage=TupleValue(storage.elements(self.m)))
        return InstanceValue(cls, storage=storage)

    def new_tensor(self, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`Tensor.__new__(cls, tensor)`: another tensor object on the same memory."""
        if kwargs or len(args) != 1 or not isinstance(args[0], TensorValue) or not is_captured_class(cls):
            raise Break(f"construction of {cls.__qualname__}", "a tensor class is called with more than a tensor")
        return into_class(self.m, args[0], cls, fresh=False)

    def class_builtin(self, owner: type, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """`dict.fromkeys(...)`, `int.from_bytes(...)`, `object.__new__(cls)`."""
        if real.__name__ == "__new__" and args and isinstance(args[0], ClassValue):
            return handlers.call_new(self.m, owner, args[0].real, args[1:], kwargs)
        handler = handlers.CLASS_METHODS.get((owner, real.__name__))
        if handler is not None:
            return handler(self.m, args, kwargs)
        if issubclass(owner, dict) and real.__name__ == "fromkeys":
            return self.from_keys(owner, args, kwargs)
        raise Break(f"a call of {handlers.describe(real)}", "it is written in C and not known to capture")

    def from_keys(self, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`dict.fromkeys` of a subclass: its constructor and its `__setitem__`."""
        if kwargs or not 1 <= len(args) <= 2:
            self.m.concrete.run(
                lambda: dict.fromkeys(*[()] * len(args), **dict.fromkeys(kwargs))
            )  # raises, in its own words
        return self.m.wrap.object(counting.from_keys).call(self.m, [self.m.wrap.object(cls), *args], {})

    def class_method(self, cls: type, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """`dict.fromkeys(...)`, `int.from_bytes(...)`, `chain.from_iterable(...)`."""
        handler = handlers.CLASS_METHODS.get((real.__objclass__, real.__name__))
        if handler is not None and cls is real.__objclass__:
            return handler(self.m, args, kwargs)
        if real is vars(dict)["fromkeys"]:
            return self.from_keys(cls, args, kwargs)
        if cls in handlers.PLAIN_CLASSES:
            values = [self.m.concrete.plain(a, f"{cls.__name__}.{real.__name__}()") for a in args]
            named = {name: self.m.concrete.plain(a, f"{cls.__name__}.{real.__name__}()") for name, a in kwargs.items()}
            return self.m.wrap.constant(self.m.concrete.run(lambda: getattr(cls, real.__name__)(*values, **named)))
        raise Break(f"a call of `{cls.__qualname__}.{real.__name__}`", "it is written in C and not known to capture")
