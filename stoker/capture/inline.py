"""Calls: binding arguments, entering Python functions, making instances, and what is not entered.

Requirements:
  1. Binding gives what CPython's gives, or its TypeError (tests/differential/test_calls.py).
  2. A function that policy keeps out of graphs is never entered: the call breaks, with the reason.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import numpy
import torch

from stoker import torch_private
from stoker.capture import builtin
from stoker.capture.dispatching import SINGLE_DISPATCH, dispatch_by_class
from stoker.capture.frame import Frame, program_of
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue, FunctionValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.module import ModuleValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.subclass import into_class, is_captured_class
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Arguments, Exhausted, Keywords, Value
from stoker.errors import Break, Raised, SkipFrame

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

NUMPY_FUNCTIONS = (numpy.ufunc, type(numpy.prod))
GENERATOR = inspect.CO_GENERATOR
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
MAXIMUM_DEPTH = 200
AFTER_YIELD_FROM = 2  # RESUME's argument


class Calls:
    """Mixed into the machine."""

    def call(self: Machine, function: Value, args: Arguments, kwargs: Keywords) -> Value:
        return function.call(self, args, kwargs)

    def call_function_value(self: Machine, function: FunctionValue, args: Arguments, kwargs: Keywords) -> Value:
        """A Python function: a special handler, a graph node, or entered."""
        real = function.real
        if real is not None:
            if self.overriding and self.policy.is_graph_function(real) and self.intercepts(args, kwargs):
                return self.inline(function, args, kwargs)
            handler = builtin.handler_for(real)
            if handler is not None:
                return handler(self, args, kwargs)
            if self.policy.is_graph_function(real):
                return self.graph_call(real, args, kwargs)
            if function.code is SINGLE_DISPATCH:
                return dispatch_by_class(self, function, args)
            refusal = self.policy.refuse_inline(real)
            if refusal is not None:
                raise Break(f"a call of `{real.__qualname__}`", refusal)
        return self.inline(function, args, kwargs)

    def inline(self: Machine, function: FunctionValue, args: Arguments, kwargs: Keywords) -> Value:
        code = function.code
        if code.co_flags & ASYNC:
            raise Break(f"a call of `{code.co_qualname}`", "async functions are not captured")
        if self.depth >= MAXIMUM_DEPTH:
            raise Break(f"a call of `{code.co_qualname}`", f"calls are nested more than {MAXIMUM_DEPTH} deep")
        frame = Frame(program_of(code), function.globals, self.current)
        frame.locals = self.bind_arguments(function, args, kwargs)
        for name, cell in zip(code.co_freevars, function.closure(self), strict=True):
            frame.cells[name] = cell
        if code.co_flags & GENERATOR:
            return GeneratorValue(frame, self.abandoned)
        return self.run_inlined(frame)

    def run_inlined(self: Machine, frame: Frame) -> Value:
        caller, self.current = self.current, frame
        self.depth += 1
        try:
            outcome = self.run(frame)
        finally:
            self.depth -= 1
            self.current = caller
        assert outcome is not None
        return outcome

    def resume_generator(
        self: Machine, generator: GeneratorValue, sent: Value | None, raised: Raised | None
    ) -> Value | None:
        """Run a generator's frame to its next yield; None when it returned."""
        frame = generator.frame
        caller, self.current = self.current, frame
        frame.parent = caller
        self.depth += 1
        try:
            if raised is not None and not generator.started:
                generator.started = True
                raise raised
            if raised is not None:
                yielded = self.throw_into(frame, raised)
                if yielded is not None:
                    return yielded
            elif generator.started:
                frame.push(sent if sent is not None else Constant(None))
            generator.started = True
            frame.yielded = None
            result = self.run(frame)
        finally:
            self.depth -= 1
            self.current = caller
            frame.parent = None
        if frame.yielded is not None:
            return frame.yielded
        generator.result = result if result is not None else Constant(None)
        return None

    def close_abandoned(self: Machine) -> None:
        """Run what is left of generators that went out of reach while they waited inside `try`."""
        while self.abandoned:
            generator = GeneratorValue(self.abandoned.pop(), [])
            generator.started = True
            generator.method_close(self)

    def throw_into(self: Machine, frame: Frame, raised: Raised) -> Value | None:
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
                    inner.method_close(self)
                else:
                    return inner.resume(self, None, raised)
            except Exhausted:
                self.finish_send(frame, inner.take_result() or Constant(None))
                frame.jump(send.value)
                return None
            except Raised as other:
                raised = other
        self.unwind(frame, frame.instructions[frame.position - 1], raised)
        return None

    def bind_arguments(self: Machine, function: FunctionValue, args: Arguments, kwargs: Keywords) -> dict[str, Value]:
        """Parameters to values, by CPython's rules."""
        code = function.code
        names = code.co_varnames
        positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
        bound: dict[str, Value] = dict(zip(names[:positional], args))
        slot = positional + keyword_only
        extra = args[positional:]
        if code.co_flags & inspect.CO_VARARGS:
            bound[names[slot]] = TupleValue(list(extra))
            slot += 1
        elif extra:
            self.raise_(TypeError, self.too_many(function, len(args)))
        rest: Keywords = {}
        by_keyword = set(names[code.co_posonlyargcount : positional + keyword_only])
        for name, value in kwargs.items():
            if name in by_keyword and name in bound:
                self.raise_(TypeError, f"{_qualname(function)}() got multiple values for argument '{name}'")
            if name in by_keyword:
                bound[name] = value
            elif code.co_flags & inspect.CO_VARKEYWORDS:
                rest[name] = value
            else:
                self.raise_(TypeError, f"{_qualname(function)}() got an unexpected keyword argument '{name}'")
        if code.co_flags & inspect.CO_VARKEYWORDS:
            bound[names[slot]] = DictValue({name: (Constant(name), value) for name, value in rest.items()})
        self.fill_defaults(function, bound)
        return bound

    def fill_defaults(self: Machine, function: FunctionValue, bound: dict[str, Value]) -> None:
        code = function.code
        names = code.co_varnames
        missing: list[str] = []
        absent = [index for index in range(code.co_argcount) if names[index] not in bound]
        if absent:
            defaults = function.defaults(self)
            first = code.co_argcount - len(defaults)
            for index in absent:
                if index < first:
                    missing.append(names[index])
                else:
                    bound[names[index]] = self.force(defaults[index - first])
        if missing:
            self.raise_(TypeError, _missing(function, missing, "positional"))
        for name in names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
            if name not in bound:
                default = function.keyword_default(self, name)
                if default is None:
                    missing.append(name)
                else:
                    bound[name] = default
        if missing:
            self.raise_(TypeError, _missing(function, missing, "keyword-only"))

    def too_many(self: Machine, function: FunctionValue, given: int) -> str:
        most = function.code.co_argcount
        least = most - len(function.defaults(self))
        takes = f"from {least} to {most}" if least != most else str(most)
        plural = "" if takes == "1" else "s"
        verb = "was" if given == 1 else "were"
        return f"{_qualname(function)}() takes {takes} positional argument{plural} but {given} {verb} given"

    def call_object(self: Machine, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """A callable that is not a Python function: a built-in, an operator of torch, a descriptor."""
        if self.overriding:
            found = self.override_call(real, args, kwargs)
            if found is not None:
                return found
        handler = builtin.handler_for(real)
        if handler is not None:
            return handler(self, args, kwargs)
        if isinstance(real, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self.call_descriptor(real, args, kwargs)
        if isinstance(real, types.ClassMethodDescriptorType) and args and isinstance(args[0], ClassValue):
            return self.call_class_method(args[0].real, real, args[1:], kwargs)
        if isinstance(real, torch_private.CustomOpDef):
            return self.graph_call(torch_private.overload_of(real), args, kwargs)
        if self.policy.is_graph_function(real):
            return self.graph_call(real, args, kwargs)
        if isinstance(real, NUMPY_FUNCTIONS):
            return self.call_numpy(real, args, kwargs)
        folded = builtin.fold_pure(self, real, args, kwargs)
        if folded is not None:
            return folded
        owner = getattr(real, "__self__", None)
        if isinstance(owner, type) and isinstance(real, types.BuiltinMethodType):
            return self.call_class_builtin(owner, real, args, kwargs)
        raise Break(
            f"a call of {builtin.describe(real)}",
            "it is not Python code and not known to capture",
            "move the call out of the compiled function, or register it with stoker.allow_in_graph if it is a tensor function",
        )

    def call_descriptor(self: Machine, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """`list.append(xs, x)`: an unbound method of a built-in type."""
        if not args:
            self.raise_(TypeError, f"unbound method {real.__qualname__}() needs an argument")
        return self.call_builtin_method(args[0], real.__name__, args[1:], kwargs, real)

    def call_getter(self: Machine, descriptor: Any, name: str, args: Arguments) -> Value:
        """`torch.Tensor.shape.__get__(x)`: how a `__torch_function__` reads an attribute."""
        if name != "__get__" or not args or not isinstance(args[0], TensorValue):
            raise Break(f"a call of {builtin.describe(descriptor)}", "it is written in C and not known to capture")
        found = self.override(descriptor.__get__, args, {})
        return found if found is not None else TensorValue.attribute(args[0], self, descriptor.__name__)

    def call_builtin_method(
        self: Machine, receiver: Value, name: str, args: Arguments, kwargs: Keywords, descriptor: Any = None
    ) -> Value:
        """A method of a built-in type, on a value of that type or of a subclass."""
        if isinstance(receiver, TensorValue):
            if self.overriding:
                found = self.override_method_call(receiver, name, args, kwargs)
                if found is not None:
                    return found
            return builtin.tensor_method(self, receiver, name, args, kwargs)
        if isinstance(receiver, BuiltinValue) and isinstance(receiver.real, types.GetSetDescriptorType):
            return self.call_getter(receiver.real, name, args)
        handler = builtin.object_method(self, receiver, name, descriptor)
        if handler is not None:
            return handler(self, receiver, args, kwargs)
        target = self.storage_of(receiver)
        method = getattr(type(target), f"method_{name}", None)
        if method is not None:
            return builtin.apply(self, functools.partial(method, target, self), method, args, kwargs)
        special = builtin.SPECIAL_METHODS.get(name)
        if special is not None and not isinstance(target, InstanceValue):
            return builtin.apply(self, functools.partial(special, self, target), special, args, kwargs)
        if isinstance(target, Constant):
            return builtin.constant_method(self, target, name, args, kwargs)
        receiver.unsupported(f"method {name!r}")
        return None

    def call_class(self: Machine, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`cls(...)`: a constructor the evaluator knows, or `__new__` and `__init__`."""
        handler = builtin.handler_for(cls)
        if handler is not None:
            return handler(self, args, kwargs)
        if issubclass(cls, enum.Enum):
            return self.wrap_object(self.run_real(cls, *(self.constant_of(a, "an enum's value") for a in args)))
        if issubclass(cls, (numpy.generic, numpy.dtype)):
            return self.fold_scalar(cls, args, kwargs)
        meta_call = self.class_lookup(type(cls), "__call__")
        if isinstance(meta_call, types.FunctionType):
            return self.call(self.bind(meta_call, self.wrap_object(cls), type(cls)), args, kwargs)
        if isinstance(meta_call, type):
            return self.call_class(meta_call, args, kwargs)
        return self.construct(cls, args, kwargs)

    def construct(self: Machine, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`type.__call__`."""
        new = self.class_lookup(cls, "__new__")
        raw_new = new.__func__ if isinstance(new, staticmethod) else new
        if isinstance(raw_new, types.FunctionType):
            made = self.call(self.wrap_object(raw_new), [self.wrap_object(cls), *args], kwargs)
        else:
            made = self.new_builtin_instance(cls, args, kwargs)
        if not issubclass(made.python_type(), cls):
            return made
        init = self.class_lookup(cls, "__init__")
        if isinstance(init, types.FunctionType):
            result = self.call(self.bind(init, made, cls), args, kwargs)
            if not (isinstance(result, Constant) and result.value is None):
                self.raise_(TypeError, f"__init__() should return None, not '{result.python_type().__name__}'")
        elif init is not object.__init__ and not isinstance(made, ExceptionValue):
            builtin.builtin_init(self, made, init, args, kwargs)
        return made

    def new_builtin_instance(self: Machine, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`object.__new__` and the constructors of built-in bases."""
        if cls.__flags__ & inspect.TPFLAGS_IS_ABSTRACT:
            self.raise_(TypeError, f"Can't instantiate abstract class {cls.__name__}")
        if isinstance(self.class_lookup(cls, "__del__"), types.FunctionType):
            raise SkipFrame(f"{cls.__qualname__} has a __del__: it must run when the last reference goes, not later")
        if issubclass(cls, OSError) and len(args) > 1:
            raise Break(
                f"construction of {cls.__qualname__}", "an OSError takes fields from its arguments, and its class too"
            )
        if issubclass(cls, BaseException):
            return ExceptionValue(cls, list(args))
        if issubclass(cls, torch.nn.Module):
            return ModuleValue(cls)
        if issubclass(cls, torch.Tensor):
            return self.new_tensor(cls, args, kwargs)
        self.note_class(cls)
        storage = builtin.new_storage(self, cls, args, kwargs)
        if storage is builtin.UNKNOWN:
            raise Break(
                f"construction of {cls.__qualname__}", "its base class is written in C and not known to capture"
            )
        if isinstance(storage, TupleValue):
            return storage
        return InstanceValue(cls, storage=storage)

    def new_tensor(self: Machine, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`Tensor.__new__(cls, tensor)`: another tensor object on the same memory."""
        if kwargs or len(args) != 1 or not isinstance(args[0], TensorValue) or not is_captured_class(cls):
            raise Break(f"construction of {cls.__qualname__}", "a tensor class is called with more than a tensor")
        return into_class(self, args[0], cls, fresh=False)

    def call_class_builtin(self: Machine, owner: type, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """`dict.fromkeys(...)`, `int.from_bytes(...)`, `object.__new__(cls)`."""
        if real.__name__ == "__new__" and args and isinstance(args[0], ClassValue):
            return builtin.call_new(self, owner, args[0].real, args[1:], kwargs)
        handler = builtin.CLASS_METHODS.get((owner, real.__name__))
        if handler is not None:
            return handler(self, args, kwargs)
        raise Break(f"a call of {builtin.describe(real)}", "it is written in C and not known to capture")

    def call_class_method(self: Machine, cls: type, real: Any, args: Arguments, kwargs: Keywords) -> Value:
        """`dict.fromkeys(...)`, `int.from_bytes(...)`, `chain.from_iterable(...)`."""
        handler = builtin.CLASS_METHODS.get((real.__objclass__, real.__name__))
        if handler is not None and cls is real.__objclass__:
            return handler(self, args, kwargs)
        if cls in builtin.PLAIN_CLASSES:
            values = [self.plain(a, f"{cls.__name__}.{real.__name__}()") for a in args]
            named = {name: self.plain(a, f"{cls.__name__}.{real.__name__}()") for name, a in kwargs.items()}
            return self.wrap_constant(self.run_real(lambda: getattr(cls, real.__name__)(*values, **named)))
        raise Break(f"a call of `{cls.__qualname__}.{real.__name__}`", "it is written in C and not known to capture")

    def exhaust(self: Machine, iterator: Value) -> list[Value]:
        found = []
        while True:
            try:
                found.append(iterator.next(self))
            except Exhausted:
                return found


def _qualname(function: FunctionValue) -> str:
    return function.real.__qualname__ if function.real is not None else function.code.co_qualname


def _missing(function: FunctionValue, names: list[str], kind: str) -> str:
    quoted = [f"'{name}'" for name in names]
    listed = (
        quoted[0]
        if len(quoted) == 1
        else " and ".join([", ".join(quoted[:-1]) + ("," if len(quoted) > 2 else ""), quoted[-1]])
    )
    plural = "s" if len(names) > 1 else ""
    return f"{_qualname(function)}() missing {len(names)} required {kind} argument{plural}: {listed}"
