"""Conditions on integer expressions: comparisons with zero, and their combinations.

In:  `Eq(a, b)`, `Ne`, `Lt`, `Le`, `Gt`, `Ge`, `And`, `Or`, `Not` over expressions and ints.
Out: canonical, hash-consed conditions; TRUE and FALSE where the answer needs no facts.

A comparison is kept as one of  e == 0,  e != 0,  e <= 0, divided by the common factor of its coefficients; over
integers a < b is a - b + 1 <= 0. Not never remains: each comparison's opposite is a comparison.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from stoker.shape.expr import Atom, Expr, Extreme, FloorDiv, Max, Mod, Number, Symbol, as_expr, constant, text
from stoker.shape.walk import evaluate, free_symbols, substitute


class Relation(Enum):
    """How an expression stands to zero."""

    EQ = "=="
    NE = "!="
    LE = "<="


class Comparison:
    """`expr relation 0`."""

    __slots__ = ("expr", "relation")

    expr: Expr
    relation: Relation

    def __repr__(self) -> str:
        return condition_text(self)


class Junction:
    """All (`conjunction`) or one of several conditions."""

    __slots__ = ("conjunction", "parts")

    conjunction: bool
    parts: tuple[Condition, ...]

    def __repr__(self) -> str:
        return condition_text(self)


class Known:
    """A condition whose answer is known."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __repr__(self) -> str:
        return str(self.value)


Condition = Comparison | Junction | Known

TRUE, FALSE = Known(True), Known(False)

_INTERNED: dict[object, Condition] = {}


def known(value: bool) -> Known:
    """TRUE or FALSE."""
    return TRUE if value else FALSE


def _comparison(expr: Expr, relation: Relation) -> Condition:
    found = _INTERNED.get((expr, relation))
    if found is None:
        found = Comparison()
        found.expr, found.relation = expr, relation
        _INTERNED[expr, relation] = found
    return found


def _divided(expr: Expr, divisor: int, offset: int) -> Expr:
    return (expr - expr.offset) // divisor + offset


@functools.lru_cache(maxsize=1 << 16)
def Eq(a: Number, b: Number) -> Condition:
    """a == b."""
    return _equality(as_expr(a) - b, Relation.EQ)


@functools.lru_cache(maxsize=1 << 16)
def Ne(a: Number, b: Number) -> Condition:
    """a != b."""
    return _equality(as_expr(a) - b, Relation.NE)


def _equality(expr: Expr, relation: Relation) -> Condition:
    wants = relation is Relation.EQ
    if not expr.terms:
        return known((expr.offset == 0) is wants)
    shared = math.gcd(*(c for _, c in expr.terms))
    if expr.offset % shared:
        return known(not wants)
    if expr.terms[0][1] < 0:
        shared = -shared
    return _comparison(_divided(expr, shared, expr.offset // shared) if shared != 1 else expr, relation)


@functools.lru_cache(maxsize=1 << 16)
def Le(a: Number, b: Number) -> Condition:
    """a <= b."""
    expr = as_expr(a) - b
    if not expr.terms:
        return known(expr.offset <= 0)
    shared = math.gcd(*(c for _, c in expr.terms))
    if shared != 1:
        expr = _divided(expr, shared, -(-expr.offset // shared))
    return _comparison(expr, Relation.LE)


def Lt(a: Number, b: Number) -> Condition:
    """a < b."""
    return Le(as_expr(a) + 1, b)


def Ge(a: Number, b: Number) -> Condition:
    """a >= b."""
    return Le(b, a)


def Gt(a: Number, b: Number) -> Condition:
    """a > b."""
    return Lt(b, a)


def And(*conditions: Condition) -> Condition:
    """All of them."""
    return _join(conditions, True)


def Or(*conditions: Condition) -> Condition:
    """At least one of them."""
    return _join(conditions, False)


def _join(conditions: tuple[Condition, ...], conjunction: bool) -> Condition:
    kept: dict[Condition, None] = {}
    for condition in conditions:
        if isinstance(condition, Known):
            if condition.value is not conjunction:
                return condition
        elif isinstance(condition, Junction) and condition.conjunction is conjunction:
            kept.update(dict.fromkeys(condition.parts))
        else:
            kept[condition] = None
    if any(Not(c) in kept for c in kept):
        return known(not conjunction)
    ordered = tuple(sorted(kept, key=condition_text))
    if len(ordered) < 2:
        return ordered[0] if ordered else known(conjunction)
    found = _INTERNED.get((ordered, conjunction))
    if found is None:
        found = Junction()
        found.parts, found.conjunction = ordered, conjunction
        _INTERNED[ordered, conjunction] = found
    return found


@functools.lru_cache(maxsize=1 << 16)
def Not(condition: Condition) -> Condition:
    """The opposite."""
    match condition:
        case Known():
            return known(not condition.value)
        case Junction():
            return _join(tuple(Not(p) for p in condition.parts), not condition.conjunction)
        case Comparison(expr=e, relation=Relation.EQ):
            return Ne(e, 0)
        case Comparison(expr=e, relation=Relation.NE):
            return Eq(e, 0)
        case Comparison(expr=e):
            return Gt(e, 0)


def holds(condition: Condition, values: Mapping[Symbol, int]) -> bool:
    """Is the condition true for these values of its symbols?"""
    match condition:
        case Known():
            return condition.value
        case Junction():
            return (all if condition.conjunction else any)(holds(p, values) for p in condition.parts)
        case Comparison():
            number = evaluate(condition.expr, values)
            if condition.relation is Relation.LE:
                return number <= 0
            return (number == 0) is (condition.relation is Relation.EQ)


def symbols_of(condition: Condition) -> frozenset[Symbol]:
    """The symbols a condition depends on."""
    match condition:
        case Known():
            return frozenset()
        case Junction():
            return frozenset().union(*(symbols_of(p) for p in condition.parts))
        case Comparison():
            return free_symbols(condition.expr)


def map_condition(condition: Condition, change: Callable[[Expr], Expr]) -> Condition:
    """The condition with each expression changed."""
    match condition:
        case Known():
            return condition
        case Junction():
            return _join(tuple(map_condition(p, change) for p in condition.parts), condition.conjunction)
        case Comparison(expr=e, relation=relation):
            changed = change(e)
            if changed is e:
                return condition
            return Le(changed, 0) if relation is Relation.LE else _equality(changed, relation)


def substitute_condition(condition: Condition, replacements: Mapping[Atom, Expr]) -> Condition:
    """The condition with atoms replaced."""
    return map_condition(condition, lambda e: substitute(e, replacements))


def sides(expr: Expr) -> tuple[Expr, Expr]:
    """expr as left - right, both without negative coefficients."""
    left, right = constant(max(expr.offset, 0)), constant(max(-expr.offset, 0))
    for monomial, coefficient in expr.terms:
        product = functools.reduce(operator.mul, monomial, constant(abs(coefficient)))
        if coefficient > 0:
            left = left + product
        else:
            right = right + product
    return left, right


def condition_text(condition: Condition) -> str:
    """The condition as Python source."""
    match condition:
        case Known():
            return str(condition.value)
        case Junction():
            word = " and " if condition.conjunction else " or "
            return word.join(f"({condition_text(p)})" for p in condition.parts)
        case Comparison(expr=e, relation=relation):
            left, right = sides(e)
            if relation is Relation.LE and right.terms and left.value is not None and left.value > 0:
                return f"{text(right)} >= {text(left)}"
            return f"{text(left)} {relation.value} {text(right)}"


Instruction = tuple[str, int]

_OPCODES = {FloorDiv: "FLOORDIV", Mod: "MOD"}


def program(condition: Condition, index: Mapping[Symbol, int]) -> list[Instruction]:
    """The condition for a stack machine: each instruction is (name, argument), and the answer is left on the stack.

    CONST pushes its argument, SYMBOL the value of the symbol with that index; all others take two values off the stack
    and push one (NOT takes one). Their argument is zero.
    """
    match condition:
        case Known():
            return [("CONST", int(condition.value))]
        case Junction():
            word = "AND" if condition.conjunction else "OR"
            code = program(condition.parts[0], index)
            for part in condition.parts[1:]:
                code += [*program(part, index), (word, 0)]
            return code
        case Comparison(expr=e, relation=relation):
            left, right = sides(e)
            return [*_code(left, index), *_code(right, index), (relation.name, 0)]


def _code(expr: Expr, index: Mapping[Symbol, int]) -> list[Instruction]:
    code: list[Instruction] = []
    for monomial, coefficient in expr.terms:
        code_before = bool(code)
        for i, atom in enumerate(monomial):
            code += _atom_code(atom, index)
            if i:
                code.append(("MUL", 0))
        size = abs(coefficient)
        if size != 1:
            code += [("CONST", size), ("MUL", 0)]
        if code_before:
            code.append(("SUB" if coefficient < 0 else "ADD", 0))
        elif coefficient < 0:
            code += [("CONST", -1), ("MUL", 0)]
    if not code:
        return [("CONST", expr.offset)]
    if expr.offset:
        code += [("CONST", abs(expr.offset)), ("SUB" if expr.offset < 0 else "ADD", 0)]
    return code


def _atom_code(atom: Atom, index: Mapping[Symbol, int]) -> list[Instruction]:
    match atom:
        case Symbol():
            return [("SYMBOL", index[atom])]
        case FloorDiv() | Mod():
            return [*_code(atom.numerator, index), *_code(atom.denominator, index), (_OPCODES[type(atom)], 0)]
        case Extreme():
            word = "MAX" if isinstance(atom, Max) else "MIN"
            code = _code(atom.arguments[0], index)
            for argument in atom.arguments[1:]:
                code += [*_code(argument, index), (word, 0)]
            return code
    raise TypeError(f"not an atom: {atom!r}")


_RELATIONS = {Relation.EQ: operator.eq, Relation.NE: operator.ne, Relation.LE: operator.le}


def written(condition: Condition, expression: Callable[[Expr], Any], apply: Callable[..., Any]) -> Any:
    """A condition written down elsewhere: `expression` gives what stands for an integer, `apply(function, a, b)` what stands for a
    call of a Python operator."""
    match condition:
        case Known():
            return condition.value
        case Comparison():
            return apply(_RELATIONS[condition.relation], expression(condition.expr), 0)
    function = operator.and_ if condition.conjunction else operator.or_
    first, *rest = (written(part, expression, apply) for part in condition.parts)
    return functools.reduce(lambda a, b: apply(function, a, b), rest, first)
