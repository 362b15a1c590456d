"""Class definitions inside captured code.

A class whose body depends on nothing but constants, and whose making nobody can observe, is made for real while capturing.
It belongs to that capture: where the class or an object of it outlives the captured code, each call makes a class of its own,
behind the graph. A class that cannot be made so, but is never used either,
is not made at all.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from stoker.capture.handlers import handles
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.classes import ClassValue, MadeClass
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.function import CellValue, FunctionValue
from stoker.capture.values.mapping import pairs_of
from stoker.capture.values.value import Arguments, Keywords, NotConstant, Value
from stoker.errors import Break

DECORATORS = frozenset({"property", "staticmethod", "classmethod", "super"})
REFUSED = frozenset(
    {
        "GET_ITER",
        "LOAD_BUILD_CLASS",
        "IMPORT_NAME",
        "LOAD_ATTR",
        "LOAD_METHOD",
        "LOAD_CLASSDEREF",
        "LOAD_DEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "LOAD_FROM_DICT_OR_GLOBALS",
        "RAISE_VARARGS",
    }
)
INHERITED = ("__init_subclass__", "__class_getitem__")


def definition_break() -> Break:
    return Break("a class definition", "classes are not made inside graphs", "define the class at module level")


class UnmadeClass(Value):
    """A class that is defined and not looked at."""

    def __init__(self, name: str) -> None:
        self.name = name

    def python_type(self) -> type:
        return type

    def unsupported(self, what: str, fix: str | None = None) -> NoReturn:
        raise definition_break()

    def require(self, m: Machine, special: str, words: str) -> None:
        raise definition_break()

    def call(self, m: Machine, args: Any, kwargs: Any) -> Value:
        raise definition_break()

    def emit(self, e: Emitting) -> None:
        raise definition_break()


@handles(builtins.__build_class__)
def build_class(m: Machine, body: Value, name: Value, *bases: Value, **kwargs: Value) -> Value:
    assert isinstance(body, FunctionValue)
    real_bases = [_real_base(m, base) for base in bases]
    if kwargs or None in real_bases or not _may_run(m, body):
        if m.current is m.root or kwargs or not all(map(_is_made_unseen, bases)):
            raise definition_break()
        return UnmadeClass(str(name.constant()))
    closure = tuple(_real_cell(m, cell) for cell in body.closure(m))
    function = types.FunctionType(body.code, body.globals.real, body.name, None, closure)  # type: ignore[arg-type]  # `_may_run` has seen that they exist
    made = m.concrete.run(builtins.__build_class__, function, name.constant(), *real_bases)
    return _adopted(m, made, builtins.__build_class__, [body, name, *bases])


def _real_cell(m: Machine, cell: CellValue) -> types.CellType:
    """An empty cell for methods of a real class to hold: who looks into it finds the variable of the captured code."""
    real = types.CellType()
    m.wrap.known[id(real)] = (cell, real)
    return real


def _adopted(
    m: Machine, made: type, maker: Callable[..., Any], args: Arguments, kwargs: Keywords | None = None
) -> Value:
    """A class that was made just now, for this capture."""
    return MadeClass(m, made, maker, args, kwargs or {})


@handles(collections.namedtuple)
def namedtuple(m: Machine, *args: Value, **kwargs: Value) -> Value:
    given = [m.concrete.plain(value, "namedtuple()") for value in args]
    named = {name: m.concrete.plain(value, "namedtuple()") for name, value in kwargs.items()}
    named.setdefault("module", m.concrete.constant(_module_name(m), "namedtuple()"))
    made = m.concrete.run(functools.partial(collections.namedtuple, **named), *given)
    again = {name: m.wrap.constant(value) for name, value in named.items()}
    return _adopted(m, made, collections.namedtuple, [m.wrap.constant(value) for value in given], again)


def _module_name(m: Machine) -> Value:
    return m.current.globals.lookup(m, Constant("__name__")) or Constant("__main__")


def made_by_type(m: Machine, name: Value, bases: Value, namespace: Value) -> Value:
    """`type(name, bases, namespace)`, of plain data alone."""
    real_bases = [_real_base(m, base) for base in bases.items_list(m)]
    if None in real_bases:
        raise definition_break()
    contents = {"__module__": m.concrete.constant(_module_name(m), "type()")}
    for key, value in pairs_of(m, namespace):
        if not isinstance(value, Constant) or not is_plain(value.value):
            raise definition_break()
        contents[key.constant()] = value.value
    made = m.concrete.run(type, name.constant(), tuple(real_bases), dict(contents))
    return _adopted(m, made, type, [name, bases, m.wrap.constant(contents)])


def _real_base(m: Machine, base: Value) -> type | None:
    """The base class, if making a subclass of it runs no code; None otherwise."""
    if not isinstance(base, ClassValue) or type(base.real) is not type:
        return None
    hooked = any(name in vars(cls) for cls in base.real.__mro__ if cls is not object for name in INHERITED)
    return None if hooked else base.real


def _is_made_unseen(base: Value) -> bool:
    """Does nobody know of a subclass of it that is never used? Other metaclasses may refuse to make one, or keep it."""
    return isinstance(base, ClassValue) and type(base.real) in (type, type(torch.autograd.Function))


def _may_run(m: Machine, body: FunctionValue) -> bool:
    """Does the body depend on constants only, and call nothing but the usual decorators? It may hand variables around it to its methods."""
    if body.globals.real is None or any(cell.source is not None for cell in body.closure(m)):
        return False
    stored = {"__name__", "__qualname__", "__module__"}
    for instruction in dis.get_instructions(body.code):
        name = instruction.argval
        if instruction.opname in REFUSED:
            return False
        if instruction.opname in ("STORE_NAME", "SETUP_ANNOTATIONS"):
            stored |= {str(name), "__annotations__"}
        elif instruction.opname in ("LOAD_NAME", "LOAD_GLOBAL") and name not in stored:
            if not _is_settled(m, body, name):
                return False
    return True


def _is_settled(m: Machine, body: FunctionValue, name: str) -> bool:
    """Is a name of the body a constant or a class, under a guard, or one of the usual decorators?"""
    found = body.globals.lookup(m, Constant(name))
    if found is None:
        real = getattr(builtins, name, None)
        return name in DECORATORS or isinstance(real, type)
    try:
        return isinstance(found, ClassValue) and type(found.real) is type or is_plain(found.constant())
    except NotConstant:
        return False
