"""Index expressions as Triton."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.codegen.expression import Dialect
from stoker.codegen.expression import expression as written
from stoker.shape.expr import Expr, Symbol
from stoker.shape.prove import Interval

TRITON = Dialect(
    factor=str,
    offset=str,
    divided=str,
    divide="//",
    divide_down="divide_down",
    remainder_down="remainder_by_floor",
    operand="({})",
    number_beside="{0} + 0*({1})",
    maximum="tl.maximum",
    minimum="tl.minimum",
)


def expression(expr: Expr, ranges: Mapping[Symbol, Interval]) -> str:
    return written(expr, ranges, TRITON)
