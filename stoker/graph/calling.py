"""Calls of torch's functions on fakes, as if a line of the program made them, or in silence: C code warns of the line of the frame that
called it, by that frame's globals, and not at all where those have no name (CPython's Python/_warnings.c)."""

from __future__ import annotations

import builtins
from types import CodeType, FunctionType
from typing import Any

_CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__
quietly = FunctionType(_CALL, {"__name__": None, "__builtins__": builtins})


def called_at(code: CodeType, line: int, surroundings: dict[str, Any]) -> FunctionType:
    """What calls a function at a line of some code."""
    return FunctionType(_CALL.replace(co_filename=code.co_filename, co_firstlineno=line), surroundings)
