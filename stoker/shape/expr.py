"""Integer expressions: immutable, hash-consed, canonical.

In:  Python operators on symbols and ints.
Out: expressions for which equality is identity, because simplification happens once, when an expression is made.

The grammar. An atom is a symbol or a function that polynomials cannot express; every expression is a polynomial of
atoms:
    expression := constant + sum of coefficient * (product of atoms)
    atom       := symbol | expression // expression | expression % expression | min(expression, ...) | max(...)
`//` and `%` round down, as Python's do. A divisor is never zero: whoever divides has asked.

Requirements, held by tests/fuzz/test_shape.py:
  1. An expression evaluates to what the same Python integers give.
  2. Rebuilding an expression from its parts gives the same object.
  3. Forms equal by the laws of rings are one object.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Union

Monomial = tuple["Atom", ...]
"""A product of atoms, sorted by `order`; repeated for powers; empty for the constant."""

Terms = tuple[tuple[Monomial, int], ...]
Number = Union["Expr", int]

_INTERNED: dict[object, Expr] = {}

_remembered = functools.lru_cache(maxsize=1 << 17)
"""Operations repeat: the same sizes are multiplied in each layer."""


class Expr:
    """A polynomial. Made by operators, `constant` and `symbol`; compare with `is` (or `==`, which is the same)."""

    __slots__ = ("_text", "offset", "terms")

    offset: int
    """The constant part."""
    _text: str
    terms: Terms
    """Everything else: sorted, without zero coefficients."""

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def value(self) -> int | None:
        """The number this is, or None if it depends on a symbol."""
        return None if self.terms else self.offset

    def __add__(self, other: Number) -> Expr:
        return add(self, as_expr(other))

    __radd__ = __add__

    def __sub__(self, other: Number) -> Expr:
        return add(self, _scaled(as_expr(other), -1))

    def __rsub__(self, other: Number) -> Expr:
        return add(as_expr(other), _scaled(self, -1))

    def __neg__(self) -> Expr:
        return _scaled(self, -1)

    def __mul__(self, other: Number) -> Expr:
        return multiply(self, as_expr(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Number) -> Expr:
        return floor_divide(self, as_expr(other))

    def __rfloordiv__(self, other: Number) -> Expr:
        return floor_divide(as_expr(other), self)

    def __mod__(self, other: Number) -> Expr:
        return modulo(self, as_expr(other))

    def __rmod__(self, other: Number) -> Expr:
        return modulo(as_expr(other), self)

    def __repr__(self) -> str:
        return text(self)


class Atom(Expr):
    """An expression that is its own only term."""

    __slots__ = ("order",)

    order: tuple[int, str]
    """Sorts atoms the same way in every process: by kind, then by text."""


class Symbol(Atom):
    """A size or an index not yet known. `owner` keeps equal names of different environments apart."""

    __slots__ = ("name", "owner")

    name: str
    owner: int


class FloorDiv(Atom):
    """numerator // denominator, where nothing divides out."""

    __slots__ = ("denominator", "numerator")

    numerator: Expr
    denominator: Expr


class Mod(Atom):
    """numerator % denominator, where nothing divides out."""

    __slots__ = ("denominator", "numerator")

    numerator: Expr
    denominator: Expr


class Extreme(Atom):
    """The least or greatest of several, none of which is known to be."""

    __slots__ = ("arguments",)

    arguments: tuple[Expr, ...]


class Min(Extreme):
    """The least."""

    __slots__ = ()


class Max(Extreme):
    """The greatest."""

    __slots__ = ()


def constant(value: int) -> Expr:
    """The expression of a number."""
    found = _INTERNED.get(value)
    if found is None:
        found = _INTERNED[value] = _polynomial((), value)
    return found


def _polynomial(terms: Terms, offset: int) -> Expr:
    made = Expr()
    made.terms, made.offset = terms, offset
    return made


def as_expr(value: Number) -> Expr:
    return value if isinstance(value, Expr) else constant(int(value))


def symbol(name: str, owner: int = 0) -> Symbol:
    """The symbol of this name (and owner): the same object each time."""
    key = (Symbol, name, owner)
    found = _INTERNED.get(key)
    if found is None:
        found = Symbol()
        found.name, found.owner = name, owner
        _INTERNED[key] = _finish(found, 0, name)
    return found  # type: ignore[return-value]  # interned: what is found is of the class asked for


def _finish(atom: Atom, kind: int, words: str) -> Atom:
    atom.terms, atom.offset, atom.order = (((atom,), 1),), 0, (kind, words)
    return atom


def _of_terms(terms: Mapping[Monomial, int], offset: int) -> Expr:
    """The expression with these terms; zero coefficients are dropped."""
    kept = [item for item in terms.items() if item[1]]
    if not kept:
        return constant(offset)
    if len(kept) > 1:
        kept.sort(key=_term_order)
    elif offset == 0 and kept[0][1] == 1 and len(kept[0][0]) == 1:
        return kept[0][0][0]
    key = (tuple(kept), offset)
    found = _INTERNED.get(key)
    if found is None:
        found = _INTERNED[key] = _polynomial(*key)
    return found


def _term_order(item: tuple[Monomial, int]) -> tuple[int, list[tuple[int, str]]]:
    return -len(item[0]), [atom.order for atom in item[0]]


@_remembered
def add(a: Expr, b: Expr) -> Expr:
    """a + b."""
    if not b.terms:
        return _shifted(a, b.offset)
    if not a.terms:
        return _shifted(b, a.offset)
    merged = dict(a.terms)
    for monomial, coefficient in b.terms:
        merged[monomial] = merged.get(monomial, 0) + coefficient
    return _of_terms(merged, a.offset + b.offset)


def _shifted(a: Expr, amount: int) -> Expr:
    return a if amount == 0 else _of_terms(dict(a.terms), a.offset + amount)


@_remembered
def _scaled(a: Expr, factor: int) -> Expr:
    if factor == 1:
        return a
    return _of_terms({m: c * factor for m, c in a.terms}, a.offset * factor)


def rejoined(a: Expr) -> Expr:
    """Write d * (x // d) + x % d as x, wherever both stand in a sum.

    Not part of the canonical form: which pairs to join is a choice, and canonical forms leave none.
    """
    for monomial, coefficient in a.terms:
        for rest in monomial:
            if not isinstance(rest, Mod):
                continue
            others = _over(monomial, (rest,)) or ()
            whole = floor_divide(rest.numerator, rest.denominator)
            terms = dict(a.terms)
            del terms[monomial]
            change = multiply(multiply(whole, rest.denominator), _of_monomial(others, coefficient))
            if change.terms and all(terms.get(m) == c for m, c in change.terms):
                joined = multiply(rest.numerator, _of_monomial(others, coefficient))
                return rejoined(add(add(_of_terms(terms, a.offset), _scaled(change, -1)), joined))
    return a


@_remembered
def multiply(a: Expr, b: Expr) -> Expr:
    """a * b, multiplied out."""
    if not b.terms:
        return _scaled(a, b.offset)
    if not a.terms:
        return _scaled(b, a.offset)
    out: dict[Monomial, int] = {}
    for x, p in (*a.terms, ((), a.offset)):
        for y, q in (*b.terms, ((), b.offset)):
            monomial = _times(x, y)
            out[monomial] = out.get(monomial, 0) + p * q
    return _of_terms(out, out.pop((), 0))


def _times(x: Monomial, y: Monomial) -> Monomial:
    return tuple(sorted(x + y, key=attrgetter("order"))) if x and y else x or y


def _over(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial without the divisor's atoms, or None if it lacks one."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _split(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a = quotient * b + rest, with as much in the quotient as the form shows; canonical when b is a number."""
    if not b.terms:
        d = b.offset
        quotient = {m: c // d for m, c in a.terms}
        rest = {m: c % d for m, c in a.terms}
        return _of_terms(quotient, a.offset // d), _of_terms(rest, a.offset % d)
    if b.offset == 0 and len(b.terms) == 1:
        ((divisor, d),) = b.terms
        out: dict[Monomial, int] = {}
        kept: dict[Monomial, int] = {}
        for monomial, coefficient in a.terms:
            left = _over(monomial, divisor)
            if left is None:
                kept[monomial] = coefficient
                continue
            out[left] = coefficient // d
            kept[monomial] = coefficient % d
        offset = out.pop((), 0)
        return _of_terms(out, offset), _of_terms(kept, a.offset)
    return _long_division(a, b)


def _long_division(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Divide by a sum; all or nothing, because a partial quotient would not be canonical."""
    lead, coefficient = b.terms[0]
    quotient, rest = constant(0), a
    for _ in range(len(a.terms) + 1):
        if rest.is_constant:
            break
        step = next(((_over(m, lead), c) for m, c in rest.terms if _over(m, lead) is not None), None)
        if step is None or step[0] is None or step[1] % coefficient:
            break
        part = _of_monomial(step[0], step[1] // coefficient)
        quotient, rest = quotient + part, rest - part * b
    return (quotient, rest) if rest.value == 0 else (constant(0), a)


def _of_monomial(monomial: Monomial, coefficient: int) -> Expr:
    return _of_terms({monomial: coefficient}, 0) if monomial else constant(coefficient)


def _common_factor(a: Expr, b: Expr) -> tuple[Monomial, int]:
    """The largest product of atoms, and number, that divides every term of both."""
    number = math.gcd(*(c for _, c in a.terms), *(c for _, c in b.terms), a.offset, b.offset)
    if a.offset or b.offset:
        return (), number
    shared = list(a.terms[0][0]) if a.terms else []
    for monomial, _ in (*a.terms, *b.terms):
        left = list(monomial)
        kept = []
        for atom in shared:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        shared = kept
    return tuple(shared), number


def _without_factor(a: Expr, monomial: Monomial, number: int) -> Expr:
    terms = {_over(m, monomial): c // number for m, c in a.terms}
    offset = a.offset // number + terms.pop((), 0)
    return _of_terms(terms, offset)  # type: ignore[arg-type]  # a dictionary knows its keys only as tuples


@_remembered
def floor_divide(a: Expr, b: Expr) -> Expr:
    """a // b, rounding down."""
    if not b.terms:
        if b.offset == 0:
            raise ZeroDivisionError("division of a symbolic size by zero")
        if not a.terms:
            return constant(a.offset // b.offset)
        if b.offset < 0:
            return floor_divide(-a, -b)
        if b.offset == 1:
            return a
    if a is b:
        return constant(1)
    quotient, rest = _split(a, b)
    if rest.value == 0:
        return quotient
    if not b.terms:
        return quotient + _divide_rest(rest, b.offset)
    monomial, number = _common_factor(rest, b)
    if monomial or number > 1:
        rest, b = _without_factor(rest, monomial, number), _without_factor(b, monomial, number)
        return quotient + floor_divide(rest, b)
    return quotient + _atom(FloorDiv, rest, b)


def _divide_rest(rest: Expr, d: int) -> Expr:
    """rest // d for coefficients between 0 and d."""
    shared = math.gcd(d, *(c for _, c in rest.terms))
    if shared > 1:
        rest, d = _of_terms({m: c // shared for m, c in rest.terms}, rest.offset // shared), d // shared
        if d == 1:
            return rest
        return floor_divide(rest, constant(d))
    if not rest.terms:
        return constant(rest.offset // d)
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and len(rest.terms[0][0]) == 1:
        inner = rest.terms[0][0][0]
        if isinstance(inner, FloorDiv) and (m := inner.denominator.value) is not None and m > 0:
            return floor_divide(inner.numerator + rest.offset * m, constant(d * m))
        if isinstance(inner, Mod) and (m := inner.denominator.value) is not None and 0 < m <= d - rest.offset:
            return constant(0)
    return _atom(FloorDiv, rest, constant(d))


@_remembered
def modulo(a: Expr, b: Expr) -> Expr:
    """a % b, with the sign of b."""
    if not b.terms:
        if b.offset == 0:
            raise ZeroDivisionError("remainder of a symbolic size by zero")
        if not a.terms:
            return constant(a.offset % b.offset)
        if b.offset < 0:
            return -modulo(-a, -b)
        return _modulo_number(a, b.offset)
    _, rest = _split(a, b)
    if rest.value == 0:
        return rest
    monomial, number = _common_factor(rest, b)
    if monomial or number > 1:
        inner = modulo(_without_factor(rest, monomial, number), _without_factor(b, monomial, number))
        return inner * _of_monomial(monomial, number)
    return _atom(Mod, rest, b)


def _modulo_number(a: Expr, d: int) -> Expr:
    a = _congruent(a, d)
    _, rest = _split(a, constant(d))
    if not rest.terms:
        return rest
    shared = math.gcd(d, *(c for _, c in rest.terms))
    if shared > 1:
        inner = _of_terms({m: c // shared for m, c in rest.terms}, rest.offset // shared)
        return _scaled(modulo(inner, constant(d // shared)), shared) + rest.offset % shared
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and isinstance(inner := rest.terms[0][0][0], Mod):
        m = inner.denominator.value
        if len(rest.terms[0][0]) == 1 and m is not None and 0 < m <= d - rest.offset:
            return rest
    return _atom(Mod, rest, constant(d))


def _congruent(a: Expr, d: int) -> Expr:
    """The same modulo d, with x % m replaced by x where d divides m."""
    for monomial, coefficient in a.terms:
        inner = monomial[0]
        if len(monomial) == 1 and isinstance(inner, Mod) and (m := inner.denominator.value) is not None and m % d == 0:
            return _congruent(a + (inner.numerator - inner) * coefficient, d)
    return a


def _atom(kind: type[FloorDiv] | type[Mod], numerator: Expr, denominator: Expr) -> Atom:
    key = (kind, numerator, denominator)
    found = _INTERNED.get(key)
    if found is None:
        found = kind()
        found.numerator, found.denominator = numerator, denominator
        sign = "//" if kind is FloorDiv else "%"
        words = f"{_grouped(numerator)} {sign} {_grouped(denominator)}"
        _INTERNED[key] = _finish(found, 1 if kind is FloorDiv else 2, words)
    return found  # type: ignore[return-value]  # interned: what is found is of the class asked for


def minimum(*arguments: Number) -> Expr:
    """The least of all."""
    return _extreme(Min, arguments)


def maximum(*arguments: Number) -> Expr:
    """The greatest of all."""
    return _extreme(Max, arguments)


def _extreme(kind: type[Extreme], arguments: Iterable[Number]) -> Expr:
    best: dict[Terms, int] = {}
    pending = [as_expr(a) for a in arguments]
    choose = min if kind is Min else max
    while pending:
        argument = pending.pop()
        if isinstance(argument, kind):
            pending.extend(argument.arguments)
        else:
            known = best.get(argument.terms)
            best[argument.terms] = argument.offset if known is None else choose(known, argument.offset)
    kept = [_of_terms(dict(terms), offset) for terms, offset in best.items()]
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=text)
    key = (kind, tuple(kept))
    found = _INTERNED.get(key)
    if found is None:
        made = kind()
        made.arguments = tuple(kept)
        words = f"{'min' if kind is Min else 'max'}({', '.join(text(a) for a in kept)})"
        found = _INTERNED[key] = _finish(made, 3, words)
    return found


def _grouped(expr: Expr) -> str:
    words = text(expr)
    return words if isinstance(expr, (Symbol, Extreme)) or (expr.is_constant and expr.offset >= 0) else f"({words})"


def text(expr: Expr) -> str:
    """The expression as Python source."""
    try:
        return expr._text
    except AttributeError:
        expr._text = _text(expr)
        return expr._text


def _text(expr: Expr) -> str:
    if isinstance(expr, Atom):
        return expr.order[1]
    words = ""
    for monomial, coefficient in sorted(expr.terms, key=lambda term: term[1] < 0):
        factors = [_factor(atom) for atom in monomial]
        if abs(coefficient) != 1:
            factors.insert(0, str(abs(coefficient)))
        sign = (" - " if coefficient < 0 else " + ") if words else ("-" if coefficient < 0 else "")
        words += sign + "*".join(factors)
    if not words:
        return str(expr.offset)
    return words if not expr.offset else f"{words} {'-' if expr.offset < 0 else '+'} {abs(expr.offset)}"


def _factor(atom: Atom) -> str:
    return f"({atom.order[1]})" if isinstance(atom, (FloorDiv, Mod)) else atom.order[1]
