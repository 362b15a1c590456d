"""Attributes of classes, found without running any code of theirs."""

from __future__ import annotations

import functools
from typing import Any

from stoker import _C

MISSING = _C.MISSING
CLASS_OF_OBJECT = vars(object)["__class__"]
HEAP_TYPE = 1 << 9  # of a class's flags: it was made by a class statement, or by C code at run time

IMMUTABLE_TYPE = 1 << 8  # of a class's flags: nobody may change it; none that a class statement makes is


def static_lookup(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def derives(cls: type, base: type) -> bool:
    """Is a class made of another, whatever `__subclasscheck__` and the registries of abstract classes say? C's `PyType_IsSubtype`."""
    return any(found is base for found in cls.__mro__)


def name_in_c(cls: type) -> str:
    """How C code names a class in its words: by the name alone, but for classes of C outside `builtins`."""
    in_c = not cls.__flags__ & HEAP_TYPE or cls.__flags__ & IMMUTABLE_TYPE
    outside = in_c and cls.__module__ != "builtins"
    return f"{cls.__module__}.{cls.__qualname__}" if outside else cls.__name__


def part_of(cls: type, path: tuple[str, ...]) -> Any:
    """What a class holds under a name, or what that holds in turn."""
    return functools.reduce(getattr, path[1:], vars(cls)[path[0]])
