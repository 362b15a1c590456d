"""Index expressions as C++."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stoker.shape.expr import Atom, Expr, Extreme, FloorDiv, Max, Mod, Symbol
from stoker.shape.prove import Interval, bounds


def expression(expr: Expr, ranges: Mapping[Symbol, Interval]) -> str:
    """The C++ of an expression. Division truncates where operands cannot be negative, which is cheaper."""
    words = []
    for monomial, factor in expr.terms:
        factors = [_atom(a, ranges) for a in monomial]
        if factor != 1 or not factors:
            factors.insert(0, _factor(factor))
        words.append("*".join(factors))
    if expr.offset or not words:
        words.append(str(expr.offset))
    return " + ".join(words)


WIDEST_KNOWN = 32


def _factor(factor: int) -> str:
    """A stride. g++ reads all that lies between the elements of a stride that is a power of two, and sorts it out, in code that
    doubles with the stride: 1024 takes it half a minute. Of a variable it does not know that; `declared` declares them."""
    return f"wide_{factor}" if factor > WIDEST_KNOWN and factor & (factor - 1) == 0 else f"{factor}"


def declared(function: str) -> str:
    """A function with the variables that its expressions use, behind its first line."""
    used = sorted({int(number) for number in re.findall(r"\bwide_(\d+)\b", function)})
    head, end, body = function.partition("\n")
    return head + end + "".join(f"  const int64_t wide_{n} = unknown({n});\n" for n in used) + body


def _atom(atom: Atom, ranges: Mapping[Symbol, Interval]) -> str:
    match atom:
        case Symbol():
            return atom.name
        case FloorDiv() | Mod():
            a, b = expression(atom.numerator, ranges), expression(atom.denominator, ranges)
            divide = isinstance(atom, FloorDiv)
            if bounds(atom.numerator, ranges).low >= 0 and bounds(atom.denominator, ranges).low >= 0:
                return f"(({a}) {'/' if divide else '%'} ({b}))"
            return f"{'floor_div' if divide else 'floor_mod'}({a}, {b})"
        case Extreme():
            parts = [f"int64_t({expression(a, ranges)})" for a in atom.arguments]
            name = "maximum" if isinstance(atom, Max) else "minimum"
            result = parts[0]
            for part in parts[1:]:
                result = f"{name}({result}, {part})"
            return result
    raise AssertionError(atom)
