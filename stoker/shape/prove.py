"""What follows from ranges and facts: intervals, and three-valued proofs.

In:  an expression or a condition; ranges of symbols; conditions known to hold.
Out: an interval that contains every value, or Proof.YES, NO or UNKNOWN.

What must hold: a YES or NO never contradicts evaluation (tests/fuzz/test_shape.py). UNKNOWN is always allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from stoker.shape.condition import Comparison, Condition, Junction, Known, Not, Relation, substitute_condition
from stoker.shape.expr import Atom, Expr, Extreme, FloorDiv, Max, Mod, Symbol, constant, symbol
from stoker.shape.walk import atoms

INFINITY = math.inf
_LARGEST_EXPANSION = 24


class Proof(Enum):
    """An answer that may be missing."""

    YES = "it always holds"
    NO = "it never holds"
    UNKNOWN = "it depends"


@dataclass(frozen=True, slots=True)
class Interval:
    """All integers from `low` to `high`, both included; a bound may be infinite."""

    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        corners = [_times(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))


EVERYTHING = Interval(-INFINITY, INFINITY)

Ranges = Mapping[Symbol, Interval]


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _divide(a: float, b: float) -> float:
    """a // b for bounds, rounded down; an infinite divisor leaves 0 or -1."""
    if math.isinf(a):
        return a if b > 0 else -a
    if math.isinf(b):
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    return a // b


def bounds(expr: Expr, ranges: Ranges) -> Interval:
    """An interval that contains the expression's value, whatever its symbols are."""
    known: dict[Atom, Interval] = {}

    def of(part: Expr) -> Interval:
        total = Interval(part.offset, part.offset)
        for monomial, coefficient in part.terms:
            product = Interval(coefficient, coefficient)
            for atom in monomial:
                product = product * known[atom]
            total = total + product
        return total

    for atom in atoms(expr):
        match atom:
            case Symbol():
                known[atom] = ranges.get(atom, EVERYTHING)
            case FloorDiv(numerator=a, denominator=b):
                known[atom] = _quotient(of(a), of(b))
            case Mod(numerator=a, denominator=b):
                known[atom] = _remainder(of(a), of(b))
            case Extreme():
                inside = [of(a) for a in atom.arguments]
                choose = max if isinstance(atom, Max) else min
                known[atom] = Interval(choose(i.low for i in inside), choose(i.high for i in inside))
    result = of(expr)
    if result.low <= 0 <= result.high and len(expr.terms) > 1 and len(expr.terms) <= _LARGEST_EXPANSION:
        result = result & _shifted_bounds(expr, ranges)
        by_remainders = _with_remainders(expr)
        return result if by_remainders is expr else result & bounds(by_remainders, ranges)
    return result


def _with_remainders(expr: Expr) -> Expr:
    """Multiples of quotients by what is left: 8*(s // 8) - s, which cancels nothing, is -(s % 8)."""
    found = expr
    for monomial, coefficient in expr.terms:
        match monomial:
            case (FloorDiv(numerator=a, denominator=b) as quotient,) if b.value and coefficient % b.value == 0:
                found = found - coefficient * quotient + coefficient // b.value * (a - a % b)
    return found


def _quotient(a: Interval, b: Interval) -> Interval:
    if b.low <= 0 <= b.high:
        if b.low == 0:
            b = Interval(1, b.high)
        elif b.high == 0:
            b = Interval(b.low, -1)
        else:
            reach = max(abs(a.low), abs(a.high))
            return Interval(-reach, reach)
    corners = [_divide(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(corners), max(corners))


def _remainder(a: Interval, b: Interval) -> Interval:
    if b.low > 0:
        if a.low >= 0 and a.high < b.low:
            return a
        high = b.high - 1
        return Interval(0, min(high, a.high) if a.low >= 0 else high)
    if b.high < 0:
        return Interval(b.low + 1, 0)
    return Interval(min(b.low + 1, 0), max(b.high - 1, 0))


def _shifted_bounds(expr: Expr, ranges: Ranges) -> Interval:
    """Bounds after writing each symbol as its minimum plus something non-negative and multiplying out.

    s*t - t for s, t >= 2 is out of reach of plain intervals; with s = 2 + a, t = 2 + b it is 2 + 2a + b + ab >= 2.
    """
    replaced: dict[Atom, Expr] = {}
    for monomial, _ in expr.terms:
        for atom in monomial:
            low = (ranges.get(atom, EVERYTHING) if isinstance(atom, Symbol) else bounds(atom, ranges)).low
            if math.isinf(low):
                return EVERYTHING
            name, owner = (atom.name, atom.owner) if isinstance(atom, Symbol) else (f"({atom.order[1]})", 0)
            replaced[atom] = symbol(f"{name}'", owner) + int(low)
    total = constant(expr.offset)
    for monomial, coefficient in expr.terms:
        product = constant(coefficient)
        for atom in monomial:
            product = product * replaced[atom]
        total = total + product
    low = -INFINITY if any(coefficient < 0 for _, coefficient in total.terms) else total.offset
    high = INFINITY if any(coefficient > 0 for _, coefficient in total.terms) else total.offset
    return Interval(low, high)


def prove(condition: Condition, ranges: Ranges, facts: Iterable[Condition] = ()) -> Proof:
    """Does the condition follow from the ranges and facts, or its opposite?"""
    match condition:
        case Known():
            return Proof.YES if condition.value else Proof.NO
        case Junction():
            facts = list(facts)
            answers = {prove(p, ranges, facts) for p in condition.parts}
            decisive = Proof.NO if condition.conjunction else Proof.YES
            if decisive in answers:
                return decisive
            return Proof.UNKNOWN if Proof.UNKNOWN in answers else next(iter(answers))
        case Comparison():
            return _prove_comparison(condition, ranges, facts)


def prove_by_cases(condition: Condition, ranges: Ranges, facts: Iterable[Condition] = (), depth: int = 3) -> Proof:
    """As `prove`; and where the smaller or the larger of a symbol and a number is meant, each case alone. Strides are made of such: max(1, u)
    is 1 where u is 0, and else u."""
    facts = list(facts)
    answer = prove(condition, ranges, facts)
    split = next(_splits(condition, ranges), None) if answer is Proof.UNKNOWN and depth else None
    if split is None:
        return answer
    atom, name, limit = split
    below, above = Interval(ranges[name].low, limit - 1), Interval(limit, ranges[name].high)
    answers = set()
    for interval in (below, above):
        exact: dict[Atom, Expr] = {name: constant(int(interval.low))} if interval.low == interval.high else {}
        is_symbol = (interval is above) is isinstance(atom, Max)
        case = substitute_condition(condition, {atom: name if is_symbol else constant(limit)})
        answers.add(prove_by_cases(substitute_condition(case, exact), {**ranges, name: interval}, facts, depth - 1))
    return answers.pop() if len(answers) == 1 else Proof.UNKNOWN


def _splits(condition: Condition, ranges: Ranges) -> Iterator[tuple[Extreme, Symbol, int]]:
    """Extremes of a symbol and a number, either of which may be it."""
    match condition:
        case Junction():
            for part in condition.parts:
                yield from _splits(part, ranges)
        case Comparison():
            for atom in atoms(condition.expr):
                of = atom.arguments if isinstance(atom, Extreme) else ()
                names = [part for part in of if isinstance(part, Symbol) and part in ranges]
                numbers = [part.value for part in of if part.value is not None]
                if not isinstance(atom, Extreme) or not len(of) == 2 == len(names) + len(numbers) or not numbers:
                    continue
                if ranges[names[0]].low < numbers[0] <= ranges[names[0]].high:
                    yield atom, names[0], numbers[0]


def _prove_comparison(condition: Comparison, ranges: Ranges, facts: Iterable[Condition]) -> Proof:
    expr = condition.expr
    interval = bounds(expr, ranges)
    if condition.relation is Relation.LE:
        if interval.high <= 0:
            return Proof.YES
        if interval.low > 0:
            return Proof.NO
    else:
        is_equality = condition.relation is Relation.EQ
        if interval.low > 0 or interval.high < 0:
            return Proof.NO if is_equality else Proof.YES
        if interval.low == interval.high == 0:
            return Proof.YES if is_equality else Proof.NO
    opposite = Not(condition)
    for fact in facts:
        if fact is condition:
            return Proof.YES
        if fact is opposite:
            return Proof.NO
        if isinstance(fact, Comparison) and fact.relation is Relation.LE:
            answer = _from_inequality(condition, fact.expr, ranges)
            if answer is not Proof.UNKNOWN:
                return answer
    return Proof.UNKNOWN


def _from_inequality(condition: Comparison, fact: Expr, ranges: Ranges) -> Proof:
    """What `fact <= 0` says about a comparison: add or subtract it, and look at what is left."""
    expr = condition.expr
    if condition.relation is Relation.LE:
        if bounds(expr - fact, ranges).high <= 0:
            return Proof.YES
        if bounds(expr + fact, ranges).low > 0:
            return Proof.NO
        return Proof.UNKNOWN
    apart = bounds(expr + fact, ranges).low > 0 or bounds(expr - fact, ranges).high < 0
    if not apart:
        return Proof.UNKNOWN
    return Proof.NO if condition.relation is Relation.EQ else Proof.YES
