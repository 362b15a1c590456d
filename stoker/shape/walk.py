"""What is inside an expression: its atoms and symbols, its value, and itself with some of them replaced.

In:  an expression.
Out: atoms, a number, or another expression, simplified as all are.

Walks go over `atoms`, which lists parts before what is made of them: none recurses, however deep an expression is.
Replacing symbols by numbers gives what `evaluate` gives (tests/fuzz/test_shape.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stoker.shape.expr import (
    Atom,
    Expr,
    Extreme,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    add,
    constant,
    floor_divide,
    maximum,
    minimum,
    modulo,
    multiply,
)


def parts(atom: Atom) -> tuple[Expr, ...]:
    """What an atom is made of."""
    match atom:
        case FloorDiv() | Mod():
            return (atom.numerator, atom.denominator)
        case Extreme():
            return atom.arguments
        case _:
            return ()


@functools.lru_cache(maxsize=1 << 16)
def atoms(expr: Expr) -> tuple[Atom, ...]:
    """All atoms inside, each once, parts before what is made of them. Walks without recursion."""
    found: dict[Atom, None] = {}
    stack: list[tuple[Atom, bool]] = [(a, False) for m, _ in expr.terms for a in m]
    while stack:
        atom, ready = stack.pop()
        if atom in found:
            continue
        if ready:
            found[atom] = None
            continue
        stack.append((atom, True))
        for part in parts(atom):
            stack.extend((a, False) for m, _ in part.terms for a in m if a not in found)
    return tuple(found)


@functools.lru_cache(maxsize=1 << 16)
def free_symbols(expr: Expr) -> frozenset[Symbol]:
    """The symbols an expression depends on."""
    return frozenset(a for a in atoms(expr) if isinstance(a, Symbol))


def evaluate(expr: Expr, values: Mapping[Symbol, int]) -> int:
    """The number an expression is, for these values of its symbols."""
    known: dict[Atom, int] = {}

    def number(part: Expr) -> int:
        total = part.offset
        for monomial, coefficient in part.terms:
            for atom in monomial:
                coefficient *= known[atom]
            total += coefficient
        return total

    for atom in atoms(expr):
        match atom:
            case Symbol():
                known[atom] = values[atom]
            case FloorDiv(numerator=a, denominator=b):
                known[atom] = number(a) // number(b)
            case Mod(numerator=a, denominator=b):
                known[atom] = number(a) % number(b)
            case Min(arguments=several):
                known[atom] = min(number(a) for a in several)
            case Max(arguments=several):
                known[atom] = max(number(a) for a in several)
    return number(expr)


_AtomKind = TypeVar("_AtomKind", bound=Atom)


def substitute(expr: Expr, replacements: Mapping[_AtomKind, Expr]) -> Expr:
    """The expression with atoms replaced, simplified again."""
    return _substituted(expr, tuple(replacements.items())) if expr.terms else expr


@functools.lru_cache(maxsize=1 << 16)
def _substituted(expr: Expr, replacements: tuple[tuple[Atom, Expr], ...]) -> Expr:
    """Remembered: the loops of each layer are renamed in the same way."""
    known: Mapping[Any, Expr] = dict(replacements)
    changed: dict[Atom, Expr] = {}
    for atom in atoms(expr):
        if atom in known:
            changed[atom] = known[atom]
        elif any(a in changed for part in parts(atom) for m, _ in part.terms for a in m):
            changed[atom] = _MAKE[type(atom)](*(_with_atoms(part, changed) for part in parts(atom)))
            changed[atom] = known.get(changed[atom], changed[atom])
    return _with_atoms(expr, changed) if changed else expr


_MAKE: dict[type[Atom], Callable[..., Expr]] = {FloorDiv: floor_divide, Mod: modulo, Min: minimum, Max: maximum}


def _with_atoms(expr: Expr, changed: Mapping[Atom, Expr]) -> Expr:
    total = constant(expr.offset)
    for monomial, coefficient in expr.terms:
        product = constant(coefficient)
        for atom in monomial:
            product = multiply(product, changed.get(atom, atom))
        total = add(total, product)
    return total
