"""Operators over Values mean Python's, for constants one by one; and the words of what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from stoker.capture.evaluator import Evaluator
from stoker.capture.python_operators import BINARY, COMPARE, UNARY
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.value import Value
from stoker.errors import Raised
from stoker.guard.guard import NotSameAs
from stoker.guard.source import Local

OBJECTS: list[Any] = [3, -2, 0, 2.5, True, "ab", b"a", None, (1, 2), 1j, float("nan"), frozenset({1})]


def outcome(function: Any) -> Any:
    """A result, or the class and words of an exception: of Python, or of the evaluator."""
    try:
        found = function()
    except Raised as raised:
        words = [argument.constant() for argument in raised.value.storage.raw_elements()]  # type: ignore[attr-defined]
        return raised.value.python_type(), tuple(words)
    except Exception as error:
        return type(error), error.args
    return found.constant() if isinstance(found, Value) else found


@pytest.mark.parametrize("text", BINARY)
def test_binary(m: Evaluator, text: str) -> None:
    for a, b in itertools.product(OBJECTS, OBJECTS):
        if text.startswith(("<<", "**")) and (isinstance(b, int) and b > 2 or isinstance(a, str)):
            continue
        wanted = outcome(lambda a=a, b=b: BINARY[text](a, b))
        found = outcome(lambda a=a, b=b: m.operators.binary(text, m.wrap.constant(a), m.wrap.constant(b)))
        assert repr(found) == repr(wanted), (a, text, b)


@pytest.mark.parametrize("text", COMPARE)
def test_compare(m: Evaluator, text: str) -> None:
    for a, b in itertools.product(OBJECTS, OBJECTS):
        wanted = outcome(lambda a=a, b=b: COMPARE[text](a, b))
        found = outcome(lambda a=a, b=b: m.operators.compare(text, m.wrap.constant(a), m.wrap.constant(b)))
        assert found == wanted, (a, text, b)


@pytest.mark.parametrize("text", UNARY)
def test_unary(m: Evaluator, text: str) -> None:
    for number in (3, -2, True, 2.5, 1j):
        if text == "~" and not isinstance(number, int):
            continue
        assert m.operators.unary(text, Constant(number)).constant() == UNARY[text](number)


def test_lists_compare_by_their_elements(m: Evaluator) -> None:
    one, two = ListValue([Constant(1), Constant(2)]), ListValue([Constant(1), Constant(2)])
    assert m.operators.equal(one, two) and not m.operators.is_(one, two)
    assert m.operators.compare("<", one, ListValue([Constant(3)])).constant() is True


def test_identity_of_two_outside_objects_is_guarded(m: Evaluator) -> None:
    x, y = m.wrap.at([], Local(0, "x")), m.wrap.at([], Local(1, "y"))
    assert not m.operators.is_(x, y)
    assert [type(guard.check) for guard in m.guards.all.values()].count(NotSameAs) == 1


@pytest.mark.parametrize(("count", "words"), [(1, "too many values to unpack"), (3, "not enough values to unpack")])
def test_unpacking(m: Evaluator, count: int, words: str) -> None:
    pair = TupleValue([Constant(1), Constant(2)])
    assert [part.constant() for part in m.operators.unpack(pair, 2)] == [1, 2]
    kind, said = outcome(lambda: m.operators.unpack(pair, count))
    assert kind is ValueError and said[0].startswith(words)


def test_tensors_make_nodes(m: Evaluator) -> None:
    x = m.wrap.at(torch.ones(2), Local(0, "x"))
    m.operators.binary("+", Constant(1), x)
    m.operators.compare("<", x, x)
    m.operators.unary("-", x)
    assert [node.name for node in m.record.graph.nodes] == ["x", "add", "lt", "neg"]
