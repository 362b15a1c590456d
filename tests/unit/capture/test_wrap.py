"""Objects to Values: one object is one Value, however it is reached, and reaching it again is guarded."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
import weakref
from typing import Any

import numpy
import pytest
import torch

from stoker.capture.evaluator import Evaluator
from stoker.capture.kinds import KINDS, OPEN
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Lazy
from stoker.errors import Break
from stoker.guard.guard import Is, SameAs
from stoker.guard.source import DictItem, Item, Local

x, y = Local(0, "x"), Local(1, "y")


class Color(enum.Enum):
    RED = 1


class Plain:
    pass


def function() -> None:
    return None


def test_the_same_object_is_the_same_value(m: Evaluator) -> None:
    shared: list[int] = []
    assert m.wrap.at(shared, x) is m.wrap.at(shared, y)
    assert [guard.check.other for guard in m.guards.all.values() if isinstance(guard.check, SameAs)] == [x]


def test_equal_objects_are_two_values(m: Evaluator) -> None:
    assert m.wrap.at([], x) is not m.wrap.at([], y)


def test_looking_is_what_guards(m: Evaluator) -> None:
    value = m.wrap.at([[1], [2]], x)
    about = {guard.source for guard in m.guards.all.values()}
    assert about == {x}, "the elements are not looked at yet"
    first = value.item(m, Constant(0))
    assert Item(x, 0) in {guard.source for guard in m.guards.all.values()}
    assert first is value.item(m, Constant(0))


def test_lazy_values_are_forced_once(m: Evaluator) -> None:
    lazy = Lazy({}, x)
    assert m.guards.all == {}
    assert m.wrap.force(lazy) is m.wrap.force(lazy)
    assert m.wrap.force(Constant(1)).constant() == 1


def test_objects_without_a_path_need_no_guard(m: Evaluator) -> None:
    for real in (len, int, torch, function, torch.nn.functional.relu):
        m.wrap.object(real)
    assert [guard for guard in m.guards.all.values() if isinstance(guard.check, Is)] == []


@pytest.mark.parametrize(
    "real", [3, 2.5, "s", b"b", None, True, (1, (2, 3)), [1, [2]], {"k": 1}, {1, 2}, frozenset({3})]
)
def test_constants_come_back(m: Evaluator, real: Any) -> None:
    value = m.wrap.constant(real)
    assert value.python_type() is type(real)
    assert m.concrete.plain(value, "a test") == real


def test_what_has_no_symbolic_form_breaks(m: Evaluator) -> None:
    with pytest.raises(Break, match="no symbolic form"):
        m.wrap.constant(Plain())


EXAMPLES: dict[Any, Any] = {
    tuple: (1,),
    torch.Size: torch.Size([2]),
    list: [1],
    dict: {"k": 1},
    collections.OrderedDict: collections.OrderedDict(k=1),
    collections.defaultdict: collections.defaultdict(int),
    types.MappingProxyType: types.MappingProxyType({"k": 1}),
    set: {1},
    frozenset: frozenset({1}),
    types.FunctionType: function,
    functools.partial: functools.partial(function),
    types.CellType: types.CellType(1),
    collections.deque: collections.deque([1]),
    weakref.ref: weakref.ref(Color),
    operator.itemgetter: operator.itemgetter(1),
    operator.attrgetter: operator.attrgetter("a"),
    operator.methodcaller: operator.methodcaller("a"),
    type: Plain,
    types.ModuleType: torch,
    torch.nn.Module: torch.nn.ReLU(),
    BaseException: ValueError("no"),
}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__qualname__)
def test_a_kind_keeps_its_type(m: Evaluator, kind: Any) -> None:
    real = EXAMPLES[kind]
    assert issubclass(m.wrap.at(real, x).python_type(), kind if kind is not type else object)
    assert kind in {family for family, _ in KINDS}


def test_open_families_are_in_the_table() -> None:
    assert {family for family in OPEN if not isinstance(family, tuple)} <= {family for family, _ in KINDS}


@pytest.mark.parametrize("real", [Color.RED, numpy.float32(2), torch.float32, torch.device("cpu"), range(3), ...])
def test_plain_data_is_constant(m: Evaluator, real: Any) -> None:
    value = m.wrap.at(real, x)
    assert isinstance(value, Constant) and value.value is real
    assert m.guards.all, "what is baked in is guarded"


def test_a_global_dictionary_is_not_looked_at_whole(m: Evaluator) -> None:
    table = m.wrap.globals({"a": 1, "b": 2})
    found = table.lookup(m, Constant("a"))
    assert found is not None and found.constant() == 1
    read = [guard.source.key for guard in m.guards.all.values() if isinstance(guard.source, DictItem)]
    assert read == ["a"]
