"""The set of guards of one capture."""

from __future__ import annotations

import pytest

from stoker.capture.evaluator import Evaluator
from stoker.guard.guard import DictKeys, Equals, Length, TypeIs
from stoker.guard.source import Fixed, Item, Local

x = Local(0, "x")


def checks(m: Evaluator) -> list[type]:
    return [type(guard.check) for guard in m.guards.all.values()]


def test_a_condition_is_kept_once(m: Evaluator) -> None:
    for _ in range(3):
        m.guards.add(x, TypeIs(list))
        m.guards.add(x, Equals(1))
    m.guards.add(x, Equals(2))
    assert checks(m) == [TypeIs, Equals, Equals]


def test_one_and_true_are_two_conditions(m: Evaluator) -> None:
    m.guards.add(x, Equals(1))
    m.guards.add(x, Equals(True))
    assert len(m.guards.all) == 2


def test_fixed_objects_need_none(m: Evaluator) -> None:
    m.guards.add_unless_fixed(Fixed([], "a list"), Length(0))
    assert checks(m) == []
    m.guards.add_unless_fixed(x, Length(0))
    assert checks(m) == [Length]


def test_below_a_snapshot_nothing_is_guarded(m: Evaluator) -> None:
    m.guards.add(Item(Fixed([1], "made here", snapshot=True), 0), Equals(1))
    assert checks(m) == []


@pytest.mark.parametrize(("real", "kind"), [({"a": 1}, DictKeys), ({object(): 1}, Length)])
def test_keys(m: Evaluator, real: dict, kind: type) -> None:
    m.guards.keys(x, real)
    assert checks(m) == [kind]


def test_a_guard_knows_the_line_that_needs_it(m: Evaluator) -> None:
    m.guards.add(x, TypeIs(list))
    (guard,) = m.guards.all.values()
    assert guard.location.startswith(m.request.code.co_filename)
