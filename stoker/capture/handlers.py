"""Callables that are not entered: the registry of handlers, and pure functions that run for real on constants.

`@handles(len)` gives a function its meaning over Values; the files of `builtins/` fill the table by family.
"""

from __future__ import annotations

import cmath
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from typing import Any

from stoker import torch_private
from stoker.capture.machine import Machine
from stoker.capture.static import HEAP_TYPE
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.text import formatted, shown
from stoker.capture.values.value import Arguments, Keywords, Value
from stoker.errors import Break

Handler = Callable[..., Value]
_handlers: dict[int, tuple[Any, Handler]] = {}
PURE: set[int] = set()
_pure_kept: list[Any] = []
CLASS_METHODS: dict[tuple[type, str], Handler] = {}
SPECIAL_METHODS: dict[str, Callable[..., Value]] = {}
OBJECT_METHODS: dict[Any, Callable[..., Value]] = {}
FIELD_READERS: dict[Any, Callable[..., Value]] = {}
FIELD_WRITERS: dict[Any, Callable[..., Value]] = {}
EXCEPTION_METHODS: dict[str, Callable[..., Value]] = {}
TENSOR_METHODS: dict[str, Callable[..., Value]] = {}
UNKNOWN = Constant(object())


def handles(*reals: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register `function(m, *args, **kwargs)` as the meaning of a call of each of these objects."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        def handler(m: Machine, args: Arguments, kwargs: Keywords) -> Value:
            return apply(m, functools.partial(function, m), function, args, kwargs)

        for real in map(inside_wrappers, reals):
            _handlers[id(real)] = (real, handler)
        return function

    return decorate


def special(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the meaning of special methods of built-in types, called by name: `x.__len__()`."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        SPECIAL_METHODS.update(dict.fromkeys(names, function))
        return function

    return decorate


def tensor_special(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register tensor methods that are not graph nodes as they stand."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        TENSOR_METHODS.update(dict.fromkeys(names, function))
        return function

    return decorate


def on_object(*descriptors: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the meaning of methods that every object has from a C base: `object.__setattr__`."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        OBJECT_METHODS.update(dict.fromkeys(descriptors, function))
        return function

    return decorate


def reads_field(*descriptors: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register what reading an attribute that C keeps gives: `generator.bit_generator`."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        FIELD_READERS.update(dict.fromkeys(descriptors, function))
        return function

    return decorate


def writes_field(*descriptors: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register what writing such an attribute does."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        FIELD_WRITERS.update(dict.fromkeys(descriptors, function))
        return function

    return decorate


def pure(*reals: Any) -> None:
    """Functions of plain data without effects: run for real when every argument is constant."""
    PURE.update(id(real) for real in reals)
    _pure_kept.extend(reals)


NAMED: dict[str, Any] = {
    "torch.onnx.is_in_onnx_export": False,
    "torch._dynamo.external_utils.is_compiling": True,
    "torch._dynamo.decorators.graph_break": None,
}
"""Answers of functions in modules that we do not import: they are known by their names alone. The last is called by torch's optimizers at
each step (`torch.optim.optimizer`), compiled or not; it asks torch's own compiler for a break, and does nothing in eager."""


def inside_wrappers(real: Any) -> Any:
    """The function that wrappers of torch's are around: some of its modules put them there when they are loaded, some twice."""
    while isinstance(real, types.FunctionType) and real.__code__ is torch_private.WITHHELD:
        real = real.__dict__["__wrapped__"]
    return real


def handler_for(real: Any) -> Handler | None:
    real = inside_wrappers(real)
    found = _handlers.get(id(real))
    if found is not None and found[0] is real:
        return found[1]
    name = f"{real.__module__}.{real.__name__}" if isinstance(real, types.FunctionType) else None
    return (lambda m, args, kwargs: Constant(NAMED[name])) if name in NAMED else None


def apply(m: Machine, call: Callable[..., Value], function: Any, args: Arguments, kwargs: Keywords) -> Value:
    """Call a handler; arguments that do not fit its signature are a break, not a crash."""
    try:
        return call(*args, **kwargs)
    except TypeError as error:
        if (
            error.__traceback__ is not None
            and error.__traceback__.tb_next is not None
            and _fits(function, call, args, kwargs)
        ):
            raise
        raise Break(f"a call of `{function.__name__}`", "its arguments are not of a form that capture knows") from error


def _fits(function: Any, call: Any, args: Arguments, kwargs: Keywords) -> bool:
    try:
        inspect.signature(call).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def object_method(m: Machine, receiver: Value, name: str, descriptor: Any) -> Callable[..., Value] | None:
    """A method from `object`, `dict`, ... called on an instance of a Python class."""
    raw = descriptor if descriptor is not None else _class_attribute(receiver.python_type(), name)
    try:
        found = OBJECT_METHODS.get(raw)
    except TypeError:
        return None
    if found is None and isinstance(receiver, ExceptionValue):
        found = EXCEPTION_METHODS.get(name)
    if found is None:
        return None
    return lambda m, receiver, args, kwargs: apply(m, functools.partial(found, m, receiver), found, args, kwargs)


def _class_attribute(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def tensor_method(m: Machine, receiver: Any, name: str, args: Arguments, kwargs: Keywords) -> Value:
    found = TENSOR_METHODS.get(name)
    if found is not None:
        return apply(m, functools.partial(found, m, receiver), found, args, kwargs)
    return m.record.method(receiver, name, args, kwargs)


def constant_method(m: Machine, receiver: Constant, name: str, args: Arguments, kwargs: Keywords) -> Value:
    """A method of a number, string, dtype, ...: run for real."""
    if name in ("__enter__", "__exit__"):
        raise Break("a context manager", f"{receiver.describe()} is entered other than by `with`")
    if isinstance(receiver.value, str) and name in ("format", "format_map"):
        named_last = [*args, *kwargs.values()]
        deferred = shown(m, functools.partial(formatted, tuple(kwargs)), receiver, *named_last)
        if deferred is not None and name == "format":
            return deferred
        told = [m.concrete.plain(a, "formatting") for a in args]
        return Constant(m.concrete.run(lambda: getattr(receiver.value, name)(*told, **_shown(m, kwargs))))
    plain = [_argument(m, a, f"an argument of {name!r}") for a in args]
    named = {k: m.concrete.constant(v, f"an argument of {name!r}") for k, v in kwargs.items()}
    return m.wrap.constant(m.concrete.run(lambda: getattr(receiver.value, name)(*plain, **named)))


def _shown(m: Machine, kwargs: Keywords) -> dict[str, Any]:
    return {name: m.concrete.plain(value, "formatting") for name, value in kwargs.items()}


def _argument(m: Machine, value: Value, what: str) -> Any:
    """A real object for a value: itself, a container of plain data, or, of an iterator, the list of what it gives."""
    if hasattr(value.python_type(), "__next__"):
        return [m.concrete.data(element, what) for element in value.items_list(m)]
    return m.concrete.data(value, what)


def fold_pure(m: Machine, real: Any, args: Arguments, kwargs: Keywords) -> Value | None:
    """Run a pure function on constants; None if it is not pure or an argument is not constant."""
    owner = getattr(real, "__self__", None)
    if id(real) not in PURE and not (isinstance(owner, types.ModuleType) and owner in PURE_MODULES):
        return None
    values = [m.concrete.data(a, f"an argument of {describe(real)}") for a in args]
    named = {name: m.concrete.data(a, f"an argument of {describe(real)}") for name, a in kwargs.items()}
    return m.wrap.constant(m.concrete.run(functools.partial(real, **named), *values))


PURE_MODULES = (math, cmath, operator)
PLAIN_CLASSES = (int, float, complex, bool, str, bytes)


def describe(real: Any) -> str:
    module, name = getattr(real, "__module__", None), getattr(real, "__qualname__", None) or repr(real)
    return f"`{module}.{name}`" if module and module != "builtins" else f"`{name}`"


def builtin_init(m: Machine, made: Value, init: Any, args: Arguments, kwargs: Keywords) -> None:
    """`__init__` of a built-in base class, after `__new__`."""
    m.attributes.bind(init, made, made.python_type()).call(m, args, kwargs)


def new_storage(m: Machine, cls: type, args: Arguments, kwargs: Keywords) -> Any:
    """What `__new__` of the built-in base of a Python class makes: None for plain objects, UNKNOWN for strange bases."""
    for base in cls.__mro__:
        if base in STORAGE:
            return STORAGE[base](m, cls, args, kwargs)
        made_in_c = not base.__flags__ & HEAP_TYPE or isinstance(vars(base).get("__new__"), types.BuiltinFunctionType)
        if made_in_c and base is not object and not _is_harmless(base):
            return UNKNOWN
    return None


STORAGE: dict[type, Callable[..., Any]] = {}
_new_of: dict[type, Callable[..., Value]] = {}


def _is_harmless(base: type) -> bool:
    return base.__module__ in ("typing", "abc", "collections.abc") or base.__name__ == "Generic"


def call_new(m: Machine, owner: type, cls: type, args: Arguments, kwargs: Keywords) -> Value:
    """`object.__new__(cls)` and its kin, called by name."""
    if owner is object:
        own = m.attributes.class_lookup(cls, "__new__") is not object.__new__
        if (args or kwargs) and own:
            m.exceptions.raise_(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
        if (args or kwargs) and m.attributes.class_lookup(cls, "__init__") is object.__init__:
            m.exceptions.raise_(TypeError, f"{cls.__name__}() takes no arguments")
        return m.calls.new_instance(cls, [], {})
    return m.calls.new_instance(cls, args, kwargs)
