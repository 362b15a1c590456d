"""The shape environment: proofs before guards, one guard per assumption, and learning from guards."""

from __future__ import annotations

import doctest
import random

import pytest

import stoker.shape
from stoker.shape import (
    DataDependent,
    Eq,
    Ge,
    Gt,
    Le,
    Lt,
    Ne,
    Proof,
    ShapeEnv,
    constant,
    holds,
    maximum,
    minimum,
    symbol,
)
from stoker.shape.condition import And, Or
from stoker.shape.expr import text
from stoker.shape.walk import evaluate
from tests.unit.shape.stack_machine import run_program


def guards(env: ShapeEnv) -> list[str]:
    return [str(g) for g in env.guards]


def test_chapter_example() -> None:
    assert doctest.testmod(stoker.shape).failed == 0


def test_canonical_forms() -> None:
    a, b = symbol("a"), symbol("b")
    assert (a * b) // b is a
    assert (8 * a + 3) // 8 is a
    assert (8 * a + b) % 8 is b % 8
    assert (a // 2) // 3 is a // 6
    assert (a % 12) % 4 is a % 4
    assert minimum(a, a + 1) is a
    assert maximum(a + 2, a, 1, 5) is maximum(5, a + 2)
    assert (6 * a) // (4 * b) is (3 * a) // (2 * b)
    assert (a * b + b) // (a + 1) is b
    assert (a + 1) * (a - 1) is a * a - 1
    assert text((a + 7) // 8 * 8 - b) == "8*((a + 7) // 8) - b"
    with pytest.raises(ZeroDivisionError):
        a // 0


def test_proven_answers_make_no_guard() -> None:
    env = ShapeEnv()
    s, t = env.new_symbol(4), env.new_symbol(9)
    assert env.decide(Gt(s, 1)) and env.decide(Ne(s, 0)) and not env.decide(Eq(s * t, t))
    assert env.decide(Lt(t, s * t)) and env.decide(Ge((s + 7) // 8, 1)) and not env.decide(Eq(8 * s + 3, 2 * t))
    assert env.decide(Le(s % 8, 7)) and env.decide(Or(Gt(s, 0), Eq(t, 3)))
    assert env.guards == []


def test_one_guard_per_assumption() -> None:
    env = ShapeEnv()
    s, t = env.new_symbol(4), env.new_symbol(9)
    assert env.decide(Lt(s, t)) and env.decide(Lt(s, t)) and env.decide(Gt(t, s)) and env.decide(Ne(s, t))
    assert not env.decide(Le(t, s))
    assert guards(env) == ["s0 + 1 <= s1"]


def test_ranges_narrow() -> None:
    env = ShapeEnv()
    s = env.new_symbol(4)
    assert env.decide(Le(s, 10)) and env.decide(Lt(s, 20)) and not env.decide(Gt(s, 10))
    assert env.decide(Ne(s, 2)) and env.decide(Ge(s, 3))
    assert len(env.guards) == 2
    assert env.simplify(minimum(s, 50)) is s and env.simplify(maximum(s, 3)) is s
    assert env.simplify(s // 16) is constant(0) and env.simplify(s % 16) is s


def test_equalities_replace() -> None:
    env = ShapeEnv()
    s, t, u = env.new_symbol(4), env.new_symbol(4), env.new_symbol(8)
    assert env.decide(Eq(s, t)) and env.decide(Eq(u, s + t))
    assert env.simplify(t) is s and env.simplify(u * t) is 2 * s * s
    assert env.decide(Eq(u, 2 * s)) and len(env.guards) == 2
    assert env.specialize(s) == 4 and env.simplify(u) is constant(8)


def test_divisibility() -> None:
    env = ShapeEnv()
    s = env.new_symbol(16)
    assert env.decide(Eq(s % 8, 0))
    assert env.simplify(8 * (s // 8)) is s
    assert env.decide(Eq(s, 8 * (s // 8)))
    assert len(env.guards) == 1


def test_duck_shaping_shares_symbols() -> None:
    env = ShapeEnv(duck_shaping=True)
    assert env.new_symbol(7, "a") is env.new_symbol(7, "b")
    assert env.new_symbol(8) is not env.new_symbol(7)
    assert env.origins[env.symbols[0]] == ["a", "b", None]
    plain = ShapeEnv()
    assert plain.new_symbol(7) is not plain.new_symbol(7)


def test_unbacked_symbols() -> None:
    env = ShapeEnv()
    u, s = env.new_unbacked(minimum=0), env.new_symbol(4)
    assert env.decide(Ge(u, 0))
    with pytest.raises(DataDependent, match="u0"):
        env.decide(Eq(u, 3))
    with pytest.raises(DataDependent):
        env.size_hint(u + s)
    assert env.require(Le(u, s)) and env.guards == [] and len(env.assertions) == 1
    assert env.prove(Le(u, s + 1)) is Proof.YES


def test_symbols_of_environments_differ() -> None:
    assert ShapeEnv().new_symbol(3) is not ShapeEnv().new_symbol(3)


def test_guards_carry_reason_and_stack() -> None:
    env = ShapeEnv(locate=lambda: "model.py:12")
    env.decide(Eq(env.new_symbol(6) % 3, 0), "it is split in three")
    assert (env.guards[0].reason, env.guards[0].stack) == ("it is split in three", "model.py:12")


def test_answers_hold_wherever_guards_hold() -> None:
    """Ask random questions, then find other values that satisfy the guards: each answer must still be right."""
    generator = random.Random(0)
    for _ in range(60):
        env = ShapeEnv()
        s = [env.new_symbol(generator.randint(2, 6)) for _ in range(3)]
        asked = []
        for _ in range(6):
            a, b = generator.choice(s), generator.choice(s)
            left = generator.choice([a + b, a * b, a // 2, a % 3, minimum(a, b), a - b, maximum(a, 4) - b])
            right = generator.choice([b, b + 1, constant(generator.randint(0, 6)), 2 * a])
            condition = generator.choice([Eq, Ne, Lt, Le, Gt, Ge])(left, right)
            asked.append((condition, env.decide(condition)))
        programs = [env.program(g) for g in env.guards]
        for _ in range(150):
            values = [generator.randint(2, 9) for _ in s]
            if all(run_program(p, values) for p in programs):
                assignment = dict(zip(s, values))
                assert all(holds(c, assignment) is answer for c, answer in asked), guards(env)


def test_program_is_flat() -> None:
    env = ShapeEnv()
    s, t = env.new_symbol(4), env.new_symbol(9)
    env.decide(And(Eq((s * t) % 4, 0), Lt(s, t)))
    for guard in env.guards:
        code = env.program(guard)
        assert all(isinstance(name, str) and isinstance(argument, int) for name, argument in code)
        assert run_program(code, [4, 9]) and evaluate(s * t, {s: 4, t: 9}) == 36
