"""The small components: exceptions, concrete objects, effects, text, modes, frames, arrays, overrides."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from stoker.capture.arrays import UFUNCS
from stoker.capture.evaluator import Evaluator
from stoker.capture.frame import Frame, program_of
from stoker.capture.modes import Modes, keeping_modes
from stoker.capture.overrides import function_behind
from stoker.capture.values.array import ArrayValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.value import NULL, NotConstant
from stoker.errors import Break, Raised
from stoker.graph.modes import read_modes
from stoker.guard.source import Local

x, y = Local(0, "x"), Local(1, "y")


def words(raised: pytest.ExceptionInfo[Raised]) -> str:
    return raised.value.value.describe()


# Exceptions


def test_a_class_that_is_raised_is_called(m: Evaluator) -> None:
    made = m.exceptions.as_exception(m.wrap.object(KeyError))
    assert isinstance(made, ExceptionValue) and made.cls is KeyError
    assert m.exceptions.as_exception(made) is made
    with pytest.raises(Raised) as raised:
        m.exceptions.as_exception(Constant(3))
    assert words(raised) == "TypeError('exceptions must derive from BaseException')"


def test_what_is_being_handled_is_found_in_callers(m: Evaluator) -> None:
    error = m.exceptions.make(ValueError, "no")
    m.root.handled.append(error)
    m.current = Frame(m.root.program, m.root.globals, parent=m.root)
    assert m.exceptions.current() is error


def test_stop_iteration_does_not_leave_a_generator(m: Evaluator) -> None:
    assert m.exceptions.of_generator(m.exceptions.make(StopIteration)).python_type() is RuntimeError
    other = m.exceptions.make(KeyError)
    assert m.exceptions.of_generator(other) is other


# Concrete objects


def test_what_python_raises_the_program_raises(m: Evaluator) -> None:
    with pytest.raises(Raised) as raised:
        m.concrete.run(int, "x")
    assert words(raised) == "ValueError(\"invalid literal for int() with base 10: 'x'\")"
    with pytest.raises(Break):
        m.concrete.run(lambda: Constant(1).unsupported("this"))
    with pytest.raises(NotConstant):
        m.concrete.run(ListValue([]).constant)


def test_containers_of_plain_data(m: Evaluator) -> None:
    nested = ListValue([Constant(1), TupleValue([Constant("a")]), DictValue({"k": (Constant("k"), Constant(2.0))})])
    assert m.concrete.plain(nested, "a test") == [1, ("a",), {"k": 2.0}]
    with pytest.raises(Break, match="a test"):
        m.concrete.plain(ListValue([m.wrap.at(torch.ones(2), x)]), "a test")


def test_numbers_and_indices(m: Evaluator) -> None:
    assert m.concrete.integer(Constant(True)) == 1 and m.concrete.index(Constant(numpy.int64(4))) == 4
    assert m.concrete.number(Constant(2.5)) == 2.5 and m.concrete.number(Constant("a")) is None
    with pytest.raises(Raised) as raised:
        m.concrete.integer(Constant("a"))
    assert "cannot be interpreted as an integer" in words(raised)
    with pytest.raises(Break, match="depends on data"):
        m.concrete.index(m.wrap.at(torch.ones(()), x))


# Effects


def test_only_what_existed_before_is_written_back(m: Evaluator) -> None:
    outside, inside = m.wrap.at([1], x), ListValue([])
    m.effects.will_mutate(outside)
    m.effects.will_mutate(inside)
    m.effects.will_mutate(outside)
    assert list(m.effects.mutated.values()) == [outside]


# Text


@pytest.mark.parametrize(
    ("value", "conversion", "spec"), [(3.14159, 0, ".2f"), ("a", 2, ">6"), (None, 1, ""), ("ä", 3, "")]
)
def test_fields_of_formatted_text(m: Evaluator, value: Any, conversion: int, spec: str) -> None:
    shown = {0: lambda v: v, 1: str, 2: repr, 3: ascii}[conversion](value)
    assert m.text.format(Constant(value), conversion, Constant(spec)).constant() == format(shown, spec)


class Shown:
    def __repr__(self) -> str:
        return "shown"


def test_objects_show_themselves_in_containers(m: Evaluator) -> None:
    nested = ListValue([InstanceValue(Shown), Constant(1)])
    assert m.text.convert(nested, 2).constant() == "[shown, 1]"


# Modes


def test_modes_are_put_back_and_remembered() -> None:
    before, modes = read_modes(), Modes()
    with keeping_modes(modes):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
    assert read_modes() == before and modes.at_entry == before and modes.at_end != before


# Frames


def test_the_stack_of_a_frame(m: Evaluator) -> None:
    frame = Frame(program_of(test_the_stack_of_a_frame.__code__), m.root.globals)
    frame.push_callable(Constant(1), wants_null=1)
    assert len(frame.stack) == 2 and NULL in frame.stack
    assert [v.constant() for v in frame.pop_many(0)] == []
    frame.clear()
    assert frame.stack == []


# Arrays


@pytest.mark.parametrize("ufunc", [numpy.add, numpy.multiply, numpy.less, numpy.true_divide], ids=lambda u: u.__name__)
def test_types_of_array_results_are_those_of_numpy(m: Evaluator, ufunc: Any) -> None:
    types = ["float32", "float64", "int32", "int64", "uint8", "bool"]
    for i, a in enumerate(types):
        for j, b in enumerate(types):
            left, right = numpy.ones(3, a), numpy.ones(3, b)
            given = [m.wrap.at(left, Local(100 + 10 * i + j, "a")), m.wrap.at(right, Local(200 + 10 * i + j, "b"))]
            try:
                found = m.arrays.ufunc(ufunc, given)
            except Break:
                continue
            assert isinstance(found, ArrayValue) and found.dtype == ufunc(left, right).dtype, (a, b)
    assert ufunc in UFUNCS


# Overrides


@pytest.mark.parametrize(
    ("special", "count", "expected"),
    [
        ("__add__", 1, torch.Tensor.add),
        ("__getitem__", 1, torch.Tensor.__getitem__),
        ("__len__", 0, torch.Tensor.__len__),
    ],
)
def test_the_function_that_an_override_is_shown(special: str, count: int, expected: Any) -> None:
    assert function_behind(special, count) is expected


class Taking:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "taken"


class TakingMore(Taking):
    pass


def test_a_subclass_is_asked_before_its_base(m: Evaluator) -> None:
    assert not m.overrides.intercepts([Constant(1)], {})
    base, derived = InstanceValue(Taking), InstanceValue(TakingMore)
    m.overrides.note_class(Taking)
    assert m.overrides.overloaded([base, derived, base], {}) == [derived, base]
    assert m.overrides.ask(torch.add, [base, Constant(1)], {}).constant() == "taken"  # type: ignore[union-attr]
