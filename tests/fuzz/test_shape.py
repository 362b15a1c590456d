"""Random integer expressions: simplification, proofs, programs and SymInts against Python's own integers."""

from __future__ import annotations

import operator
from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stoker.shape import Eq, Ge, Gt, Interval, Le, Lt, Ne, Proof, ShapeEnv, constant, symbol
from stoker.shape.condition import And, Not, Or, holds, program
from stoker.shape.expr import Expr, maximum, minimum, rejoined
from stoker.shape.prove import bounds, prove, prove_by_cases
from stoker.shape.symnode import symint
from stoker.shape.walk import evaluate, substitute
from tests.unit.shape.stack_machine import run_program

NAMES = "abcd"
SYMBOLS = [symbol(n) for n in NAMES]

trees = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(NAMES)),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]), inner, inner),
    max_leaves=9,
)
values = st.fixed_dictionaries({n: st.integers(-12, 20) for n in NAMES})
sizes = st.fixed_dictionaries({n: st.integers(1, 20) for n in NAMES})

OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
SYMBOLIC = OPERATORS | {"min": minimum, "max": maximum}


def number(tree: Any, env: dict[str, int]) -> int:
    match tree:
        case int():
            return tree
        case str():
            return env[tree]
        case (op, left, right):
            return OPERATORS[op](number(left, env), number(right, env))
    raise TypeError


def build(tree: Any) -> Expr:
    match tree:
        case int():
            return constant(tree)
        case str():
            return symbol(tree)
        case (op, left, right):
            return SYMBOLIC[op](build(left), build(right))
    raise TypeError


def built(tree: Any) -> Expr:
    """The expression, or a rejected example where it divides by zero."""
    try:
        return build(tree)
    except ZeroDivisionError:
        assume(False)
        raise


def counted(tree: Any, env: dict[str, int]) -> int:
    try:
        return number(tree, env)
    except ZeroDivisionError:
        assume(False)
        raise


def named(env: dict[str, int]) -> dict[Any, int]:
    return {symbol(n): v for n, v in env.items()}


@settings(max_examples=400, deadline=None)
@given(trees, values)
def test_equals_python(tree: Any, env: dict[str, int]) -> None:
    expected = counted(tree, env)
    expr = built(tree)
    assert evaluate(expr, named(env)) == expected
    assert evaluate(rejoined(expr), named(env)) == expected


@settings(max_examples=300, deadline=None)
@given(trees)
def test_rebuilding_is_identity(tree: Any) -> None:
    expr = built(tree)
    again = {s: symbol(s.name) for s in SYMBOLS}
    assert substitute(expr, again) is expr
    assert built(tree) is expr


@settings(max_examples=300, deadline=None)
@given(trees, trees, trees)
def test_ring_laws_are_identities(x: Any, y: Any, z: Any) -> None:
    a, b, c = built(x), built(y), built(z)
    assert a + b is b + a
    assert (a + b) + c is a + (b + c)
    assert a * b is b * a
    assert (a * b) * c is a * (b * c)
    assert a * (b + c) is a * b + a * c
    assert a - a is constant(0)
    assert minimum(a, b) is minimum(b, a)
    assert maximum(a, maximum(b, c)) is maximum(maximum(a, b), c)


@settings(max_examples=300, deadline=None)
@given(trees, values, st.sampled_from(NAMES), trees)
def test_substitution_equals_evaluation(tree: Any, env: dict[str, int], name: str, value: Any) -> None:
    amount = counted(value, env)
    expected = counted(tree, {**env, name: amount})
    try:
        replaced = substitute(built(tree), {symbol(name): built(value)})
    except ZeroDivisionError:
        assume(False)
        raise
    assert evaluate(replaced, named(env)) == expected


RELATIONS = {"==": Eq, "!=": Ne, "<": Lt, "<=": Le, ">": Gt, ">=": Ge}
PYTHON = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@settings(max_examples=400, deadline=None)
@given(trees, trees, st.sampled_from(list(RELATIONS)), values)
def test_conditions_and_programs(x: Any, y: Any, relation: str, env: dict[str, int]) -> None:
    expected = PYTHON[relation](counted(x, env), counted(y, env))
    condition = RELATIONS[relation](built(x), built(y))
    assert holds(condition, named(env)) is expected
    assert holds(Not(condition), named(env)) is not expected
    assert Not(Not(condition)) is condition
    other = Le(built(x), 3)
    both = (And(condition, other), Or(condition, other))
    index = {s: i for i, s in enumerate(SYMBOLS)}
    numbers = [env[s.name] for s in SYMBOLS]
    for formula in (condition, *both):
        assert run_program(program(formula, index), numbers) is holds(formula, named(env))


@settings(max_examples=500, deadline=None)
@given(trees, trees, st.sampled_from(list(RELATIONS)), sizes, trees, trees, st.sampled_from(list(RELATIONS)))
def test_proofs_never_contradict(
    x: Any, y: Any, relation: str, env: dict[str, int], u: Any, v: Any, other: str
) -> None:
    low = {s: min(env[s.name], 2) for s in SYMBOLS}
    ranges = {s: Interval(low[s], 20) for s in SYMBOLS}
    counted(x, env), counted(y, env), counted(u, env), counted(v, env)
    expr = built(x)
    interval = bounds(expr, ranges)
    assert interval.low <= evaluate(expr, named(env)) <= interval.high
    condition, fact = RELATIONS[relation](expr, built(y)), RELATIONS[other](built(u), built(v))
    truth = holds(condition, named(env))
    facts = [fact] if holds(fact, named(env)) else [Not(fact)]
    for answer in (prove(condition, ranges, facts), prove_by_cases(condition, ranges, facts)):
        assert answer is Proof.UNKNOWN or (answer is Proof.YES) is truth


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(trees, trees, st.sampled_from(list(RELATIONS))), max_size=4), trees, sizes)
def test_environment_is_sound(questions: list[Any], tree: Any, env: dict[str, int]) -> None:
    """Answers are those of the hints; simplification keeps the value for every assignment that satisfies the guards."""
    shapes = ShapeEnv()
    mine = {n: shapes.new_symbol(v, minimum=1) for n, v in env.items()}
    rename = {symbol(n): s for n, s in mine.items()}
    for x, y, relation in questions:
        expected = PYTHON[relation](counted(x, env), counted(y, env))
        condition = RELATIONS[relation](substitute(built(x), rename), substitute(built(y), rename))
        assert shapes.decide(condition) is expected
    expected = counted(tree, env)
    expr = shapes.simplify(substitute(built(tree), rename))
    assert shapes.simplify(expr) is expr
    assert evaluate(expr, shapes.hints) == expected
    for guard in shapes.guards:
        assert run_program(shapes.program(guard), [shapes.hints[s] for s in shapes.symbols])


@settings(max_examples=300, deadline=None)
@given(trees, values)
def test_symint_equals_int(tree: Any, env: dict[str, int]) -> None:
    expected = counted(tree, env)
    shapes = ShapeEnv()
    mine = {n: symint(shapes, shapes.new_symbol(v, minimum=-100)) for n, v in env.items()}

    def run(t: Any) -> Any:
        match t:
            case int():
                return t
            case str():
                return mine[t]
            case ("min", left, right):
                return torch.sym_min(run(left), run(right))
            case ("max", left, right):
                return torch.sym_max(run(left), run(right))
            case (op, left, right):
                return OPERATORS[op](run(left), run(right))
        raise TypeError

    result = run(tree)
    assert (result == expected) and int(result) == expected
