"""Instructions: recorded once if equal, and equal only if they compute the same."""

from __future__ import annotations

import dataclasses
import typing

import pytest
import torch

from stoker.loop import Recorder, ops, using
from stoker.loop.instruction import LoopInstruction, Number, index_expressions, with_expressions
from stoker.shape.expr import symbol


def test_equal_instructions_are_one() -> None:
    with using(Recorder()) as recorder:
        x = ops.load("x", symbol("i0"), torch.float32)
        again = ops.load("x", symbol("i0"), torch.float32)
        assert ops.mul(x, again) == ops.mul(again, x)
    assert len(recorder.instructions) == 2


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1, True), (1, 1.0), (0, False)])
def test_constants_that_python_calls_equal_are_not(a: float, b: float) -> None:
    assert a == b and Number.of(a, torch.float32) != Number.of(b, torch.float32)
    with using(Recorder()) as recorder:
        assert ops.constant(a, torch.float32) != ops.constant(b, torch.float32)
    assert len(recorder.instructions) == 2


def test_constants_that_python_calls_different_are_equal() -> None:
    nan = float("nan")
    assert Number.of(nan, torch.float32) == Number.of(float("nan"), torch.float32)


@pytest.mark.parametrize("kind", typing.get_args(LoopInstruction), ids=lambda kind: kind.__name__)
def test_every_kind_is_frozen_data_with_arguments_and_a_type(kind: type) -> None:
    assert [field.name for field in dataclasses.fields(kind)][:2] == ["arguments", "dtype"]
    assert kind.__dataclass_params__.frozen


def test_expressions_inside_are_found_and_changed() -> None:
    i, j = symbol("i0"), symbol("i1")
    with using(Recorder()) as recorder:
        x = ops.load("x", 2 * i, torch.int64)
        place = ops.indirect(x, 3 * i)
        ops.store("y", place + i, ops.index(i + 1, torch.int64))
    found = [index_expressions(instruction) for instruction in recorder.instructions]
    assert found == [(2 * i,), (3 * i,), (i + 1,), (place + i,)]
    changed = [with_expressions(instruction, lambda e: e + j) for instruction in recorder.instructions]
    assert [index_expressions(c) for c in changed] == [tuple(e + j for e in each) for each in found]
