"""Index expressions as text of a language of kernels.

Whole numbers divide toward zero in all of them, which is what is meant where operands cannot be negative, and cheaper; elsewhere a
function of the generator's library rounds down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from stoker.shape.expr import Atom, Expr, Extreme, FloorDiv, Max, Mod, Symbol
from stoker.shape.prove import Interval, bounds


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one language writes what languages write differently."""

    factor: Callable[[int], str]
    offset: Callable[[int], str]
    divided: Callable[[str], str]
    """The text of an operand of a division."""
    divide: str
    divide_down: str
    remainder_down: str
    operand: str
    """An argument of a maximum or minimum."""
    number_beside: str
    """A number known by the writer as the first argument of a function, beside the second."""
    maximum: str
    minimum: str


def expression(expr: Expr, ranges: Mapping[Symbol, Interval], dialect: Dialect) -> str:
    """The text of an expression."""
    words = []
    for monomial, factor in expr.terms:
        factors = [_atom(a, ranges, dialect) for a in monomial]
        if factor != 1 or not factors:
            factors.insert(0, dialect.factor(factor))
        words.append("*".join(factors))
    if expr.offset or not words:
        words.append(dialect.offset(expr.offset))
    return " + ".join(words)


def _atom(atom: Atom, ranges: Mapping[Symbol, Interval], dialect: Dialect) -> str:
    match atom:
        case Symbol():
            return atom.name
        case FloorDiv() | Mod():
            parts = (atom.numerator, atom.denominator)
            a, b = (dialect.divided(expression(part, ranges, dialect)) for part in parts)
            divides = isinstance(atom, FloorDiv)
            if bounds(atom.numerator, ranges).low >= 0 and bounds(atom.denominator, ranges).low >= 0:
                return f"(({a}) {dialect.divide if divides else '%'} ({b}))"
            if atom.numerator.value is not None:
                a = dialect.number_beside.format(a, b)
            return f"{dialect.divide_down if divides else dialect.remainder_down}({a}, {b})"
        case Extreme():
            name = dialect.maximum if isinstance(atom, Max) else dialect.minimum
            operands = (dialect.operand.format(expression(a, ranges, dialect)) for a in atom.arguments)
            return reduce(lambda result, operand: f"{name}({result}, {operand})", operands)
    raise AssertionError(atom)
