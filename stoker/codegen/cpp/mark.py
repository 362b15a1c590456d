"""Numbers that might as well be variables are marked, for `share.py` to make variables of.

What the C++ compiler knows of a number is worth something where it is small (a loop is unrolled), where something is divided by it (a
multiplication is cheaper), and where it is a power of two. Other numbers it writes into the code as they are.
"""

from __future__ import annotations

import math
import re
from typing import Any

from stoker.codegen.cpp.operation import literal
from stoker.loop.instruction import Number

MARK = re.compile("⟨([^⟩]*)⟩")
WIDEST_KNOWN = 32
LONGEST_KNOWN = 256


def marked(number: str) -> str:
    return f"⟨{number}⟩"


def plain(text: str) -> str:
    """Text without marks."""
    return MARK.sub(r"\1", text)


def large(number: int, text: str) -> str:
    """A number of an index."""
    return marked(text) if abs(number) > WIDEST_KNOWN else text


def long(count: int | None, text: str) -> str:
    """How often a loop runs: of a short one, it matters how it ends."""
    return marked(text) if count is not None and count > LONGEST_KNOWN else text


def constant(i: Number) -> str:
    """A number among the values. Whole ones decide what is read, and with that whether a loop can be vectors: they are known."""
    return literal(i.value, i.dtype, marked if i.dtype.is_floating_point and _is_odd(i.value) else str)


def _is_odd(value: Any) -> bool:
    """Is a number neither zero, nor a power of two, nor infinite, nor nan?"""
    return math.isfinite(value) and abs(math.frexp(value)[0]) not in (0.0, 0.5)
