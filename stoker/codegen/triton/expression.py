"""Index expressions as Triton. Whole numbers divide toward zero there, as in C."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.shape.expr import Atom, Expr, Extreme, FloorDiv, Max, Mod, Symbol
from stoker.shape.prove import Interval, bounds


def expression(expr: Expr, ranges: Mapping[Symbol, Interval]) -> str:
    """The text of an expression."""
    words = []
    for monomial, factor in expr.terms:
        factors = [_atom(a, ranges) for a in monomial]
        if factor != 1 or not factors:
            factors.insert(0, str(factor))
        words.append("*".join(factors))
    if expr.offset or not words:
        words.append(str(expr.offset))
    return " + ".join(words)


def _atom(atom: Atom, ranges: Mapping[Symbol, Interval]) -> str:
    match atom:
        case Symbol():
            return atom.name
        case FloorDiv() | Mod():
            a, b = expression(atom.numerator, ranges), expression(atom.denominator, ranges)
            divide = isinstance(atom, FloorDiv)
            if bounds(atom.numerator, ranges).low >= 0 and bounds(atom.denominator, ranges).low >= 0:
                return f"(({a}) {'//' if divide else '%'} ({b}))"
            return f"{'divide_down' if divide else 'remainder_by_floor'}({a}, {b})"
        case Extreme():
            name = "tl.maximum" if isinstance(atom, Max) else "tl.minimum"
            result, *rest = (f"({expression(a, ranges)})" for a in atom.arguments)
            for part in rest:
                result = f"{name}({result}, {part})"
            return result
    raise AssertionError(atom)
