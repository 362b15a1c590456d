"""Index expressions as C++."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from stoker.codegen.cpp.mark import WIDEST_KNOWN, large, plain
from stoker.codegen.expression import Dialect
from stoker.codegen.expression import expression as written
from stoker.shape.expr import Expr, Symbol
from stoker.shape.prove import Interval


def _factor(factor: int) -> str:
    """A stride. g++ reads all that lies between the elements of a stride that is a power of two, and sorts it out, in code that
    doubles with the stride: 1024 takes it half a minute. Of a variable it does not know that; `declared` declares them."""
    return f"wide_{factor}" if factor > WIDEST_KNOWN and factor & (factor - 1) == 0 else f"{factor}"


def declared(function: str) -> str:
    """A function with the variables that its expressions use, behind its first line."""
    used = sorted({int(number) for number in re.findall(r"\bwide_(\d+)\b", function)})
    head, end, body = function.partition("\n")
    return head + end + "".join(f"  const int64_t wide_{n} = unknown({n});\n" for n in used) + body


CPP = Dialect(
    factor=_factor,
    offset=str,
    divided=str,
    divide="/",
    divide_down="floor_div",
    remainder_down="floor_mod",
    operand="int64_t({})",
    number_beside="{0}",
    maximum="maximum",
    minimum="minimum",
)
MARKED = replace(
    CPP,
    factor=lambda n: large(n, _factor(n)),
    offset=lambda n: large(n, str(n)),
    divided=plain,  # dividing by what is known is a multiplication
)


def expression(expr: Expr, ranges: Mapping[Symbol, Interval], dialect: Dialect = CPP) -> str:
    return written(expr, ranges, dialect)
