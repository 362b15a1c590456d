"""Opcodes that capture refuses, each with its reason. They break the graph; CPython runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from stoker.errors import Break

REFUSED = {
    "async code is not captured": ("GET_AITER GET_ANEXT BEFORE_ASYNC_WITH END_ASYNC_FOR ASYNC_GEN_WRAP GET_AWAITABLE"),
    "class bodies and module code are not captured": (
        "LOAD_CLASSDEREF LOAD_LOCALS LOAD_FROM_DICT_OR_DEREF "
        "LOAD_FROM_DICT_OR_GLOBALS SETUP_ANNOTATIONS IMPORT_STAR PRINT_EXPR"
    ),
    "it exists only in code that is being traced or specialised by CPython": (
        "INTERPRETER_EXIT ENTER_EXECUTOR INSTRUMENTED_LINE RESERVED EXIT_INIT_CHECK"
    ),
}


def _refuse(name: str, reason: str) -> Callable[..., NoReturn]:
    def handler(m: Any, f: Any, i: Any) -> NoReturn:
        raise Break(f"instruction {name}", reason)

    handler.__name__ = name
    return handler


globals().update({name: _refuse(name, reason) for reason, names in REFUSED.items() for name in names.split()})
