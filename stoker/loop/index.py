"""Arithmetic on index expressions: simplification under ranges, coefficients, and splitting one range of loops by another.

In:  expressions over loop symbols, whose ranges are known: each runs from 0 to its size less one.
Out: simpler expressions; `Dimension` lists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stoker.loop.layout import Sizes, of_lists, product
from stoker.shape.expr import Atom, Expr, FloorDiv, Mod, Symbol, constant, floor_divide, symbol
from stoker.shape.prove import INFINITY, Interval, bounds
from stoker.shape.walk import atoms, free_symbols, substitute


class Dimension(NamedTuple):
    """One loop: its symbol, and how often it runs."""

    symbol: Symbol
    size: Expr


Dimensions = tuple[Dimension, ...]


def loops_of(prefix: str, sizes: Sequence[Expr]) -> Dimensions:
    """Loops of these sizes, named by a letter and their numbers."""
    return tuple(Dimension(symbol(f"{prefix}{n}"), size) for n, size in enumerate(sizes))


def ranges_of(dimensions: Sequence[Dimension]) -> dict[Symbol, Interval]:
    """What is known of loop symbols, and of sizes: they are at least 0."""
    known: dict[Symbol, Interval] = {}
    for dimension in dimensions:
        for size_symbol in free_symbols(dimension.size):
            known[size_symbol] = Interval(0, INFINITY)
    for dimension in dimensions:
        high = bounds(dimension.size, known).high - 1
        known[dimension.symbol] = Interval(0, max(high, 0))
    return known


def simplify(expr: Expr, ranges: Mapping[Symbol, Interval]) -> Expr:
    """Drop divisions and remainders that the ranges decide."""
    if not any(isinstance(atom, (FloorDiv, Mod)) for atom in atoms(expr)):
        return expr
    decided: dict[Atom, Expr] = {}
    for atom in atoms(expr):
        if isinstance(atom, (FloorDiv, Mod)) and (limit := atom.denominator.value) is not None:
            within = bounds(atom.numerator, ranges)
            if within.low >= 0 and within.high < limit:
                decided[atom] = constant(0) if isinstance(atom, FloorDiv) else atom.numerator
    return simplify(substitute(expr, decided), ranges) if decided else expr


@functools.lru_cache(maxsize=1 << 15)
def coefficient(expr: Expr, symbol: Symbol) -> Expr | None:
    """What the symbol is multiplied with, if the expression is linear in it; otherwise None."""
    result = constant(0)
    for monomial, number in expr.terms:
        count = sum(1 for atom in monomial if atom is symbol)
        inside = any(atom is not symbol and symbol in free_symbols(atom) for atom in monomial)
        if inside or count > 1:
            return None
        if count == 1:
            rest = constant(number)
            for atom in monomial:
                if atom is not symbol:
                    rest = rest * atom
            result = result + rest
    return result


def walks(index: Expr, loop: Dimension) -> bool:
    """Do neighbours along a loop lie side by side?"""
    step = coefficient(index, loop.symbol)
    return step is not None and step.value == 1


def is_computed(index: Expr) -> bool:
    """Does it depend on an index that was looked up?"""
    return any(s.name.startswith("x") for s in free_symbols(index))


def most_crossed(
    outer: Dimensions, crossing: Callable[[Dimension, Dimension], int], least: tuple[int, int]
) -> Dimension | None:
    """The loop that most accesses walk along that cross the last one, by their number; None if there is none, or one of
    the two runs less often than is worth an axis of its own."""
    *others, last = outer
    votes = {loop: crossing(loop, last) for loop in others}
    most = max(votes, key=votes.__getitem__)
    small = any(d.size.value is not None and d.size.value < limit for d, limit in zip((most, last), least))
    return None if small or not votes[most] else most


def uses(expr: Expr, symbol: Symbol) -> bool:
    """Does the expression depend on the symbol?"""
    return symbol in free_symbols(expr)


def divide_exactly(a: Expr, b: Expr) -> Expr | None:
    """a // b if b divides a for all values, else None."""
    if b.value == 0:
        return None
    quotient = floor_divide(a, b)
    return quotient if quotient * b is a else None


@of_lists
def refine(first: Sequence[Expr], second: Sequence[Expr]) -> Sizes | None:
    """The coarsest list of sizes from which both lists arise by multiplying neighbours; None if there is none."""
    left, right = [s for s in first if s.value != 1], [s for s in second if s.value != 1]
    out: list[Expr] = []
    while left and right:
        a, b = left[-1], right[-1]
        if a is b:
            out.append(a)
            left.pop()
            right.pop()
        elif (quotient := divide_exactly(a, b)) is not None:
            out.append(b)
            right.pop()
            left[-1] = quotient
        elif (quotient := divide_exactly(b, a)) is not None:
            out.append(a)
            left.pop()
            right[-1] = quotient
        else:
            return None
    if left or right:
        return None
    return tuple(reversed(out))


@of_lists
def express(sizes: Sequence[Expr], fine: Sequence[Dimension]) -> Sizes:
    """For loops of these sizes, each as an expression of the finer loops that it is the product of."""
    result: list[Expr] = []
    position = len(fine)
    for size in reversed(sizes):
        value, stride = constant(0), constant(1)
        while stride is not size:
            position -= 1
            value = value + fine[position].symbol * stride
            stride = stride * fine[position].size
        result.append(value)
    return tuple(reversed(result))


def loops_by_place(
    loops: Dimensions, index: Expr, *, gaps: bool = False
) -> Callable[[Expr], dict[Symbol, Expr]] | None:
    """From a place in memory, which loops walk in some order, each element once, to where each loop is there. There may be elements that
    no loop meets if `gaps` are allowed."""
    steps = [(found.value, loop) for loop in loops if (found := coefficient(index, loop.symbol)) is not None]
    known = [(stride, loop, loop.size.value) for stride, loop in steps if stride and loop.size.value]
    if len(known) != len(loops) or index is not sum((loop.symbol * s for s, loop, _ in known), constant(0)):
        return None
    known.sort(key=lambda found: found[0])
    running, turns = 1, []
    for place, (stride, _, size) in enumerate(known):
        beyond = known[place + 1][0] if place + 1 < len(known) else stride * size
        if beyond % stride or beyond < stride * size or (stride != running and not gaps):
            return None
        running = stride * size
        turns.append(beyond // stride)
    return lambda place: {loop.symbol: (place // stride) % turn for (stride, loop, _), turn in zip(known, turns)}


def count(dimensions: Sequence[Dimension]) -> Expr:
    """How often the innermost statement runs."""
    return product([d.size for d in dimensions])
