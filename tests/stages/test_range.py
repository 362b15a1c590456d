"""Indices out of range raise in kernels what they raise in eager; negative ones are refused or counted from the end, as there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.codegen.executor import executor
from stoker.codegen.generators import generators
from stoker.codegen.host import host_program
from stoker.errors import OUTSIDE
from stoker.loop.body import Recorder
from stoker.loop.check import check
from stoker.loop.handler import ops, using
from stoker.loop.index import Dimension
from stoker.loop.layout import Layout
from stoker.loop.node import Loops, Program
from stoker.loop.op import outside_code, outside_error
from stoker.loop.view import Stored
from stoker.pipeline import build_kernels
from stoker.schedule.plan import make_plan
from stoker.shape.expr import constant, symbol
from tests.stages.loop_oracle import interpret

X, PLACES, ONE = torch.arange(12.0).view(4, 3), torch.tensor([[0, -1, 1]]), torch.ones(1, 3)
REFUSE: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i: torch.gather(x, 0, i) + 1,
    "scatter": lambda x, i: x.scatter(0, i, ONE) + 1,
    "scatter_add": lambda x, i: x.scatter_add(0, i, ONE) + 1,
    "index_select": lambda x, i: x.index_select(0, i[0]) + 1,
    "index_add": lambda x, i: x.index_add(0, i[0], torch.ones(3, 3)) + 1,
    "index_copy": lambda x, i: x.index_copy(0, i[0], torch.ones(3, 3)) + 1,
    "embedding": lambda x, i: F.embedding(i, x) + 1,
}
COUNT: dict[str, Callable[..., Any]] = {
    "index": lambda x, i: x[i[0]] + 1,
    "index_put": lambda x, i: torch.index_put(x, (i[0],), torch.ones(3, 3)) + 1,
    "index_fill": lambda x, i: x.index_fill(0, i[0], 5.0) + 1,
}


@pytest.mark.parametrize("name", REFUSE)
def test_refused(name: str) -> None:
    program = REFUSE[name]
    compiled = stoker.compile(program)
    good = PLACES.abs()
    torch.testing.assert_close(compiled(X, good), program(X, good))
    for wrong in (PLACES, PLACES.abs() * 9):
        _same_error(program, compiled, X, wrong)


def _same_error(program: Callable[..., Any], compiled: Callable[..., Any], *given: Any) -> None:
    """Of eager's type, and in its words but for numbers."""
    with pytest.raises((IndexError, RuntimeError)) as eager:
        program(*given)
    with pytest.raises((IndexError, RuntimeError)) as mine:
        compiled(*given)
    assert mine.type is eager.type
    assert any(words in str(eager.value) and words in str(mine.value) for words in ("out of bounds", "out of range"))


ELSEWHERE: dict[str, Callable[..., Any]] = {
    "index": lambda x, i: x[i[0]] + 1,
    "index_put": lambda x, i: torch.index_put(x, (i[0],), torch.ones(3, 3)) + 1,
    "index_fill": lambda x, i: x.index_fill(0, i[0], 5.0) + 1,
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, ONE, "amax") + 1,
    "nll_loss": lambda x, i: F.nll_loss(x[:3], i[0]),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:3], i[0]),
    "weighted": lambda x, i: F.cross_entropy(x[:3], i[0], x[0]),
    "pictures": lambda x, i: F.cross_entropy(x.view(1, 3, 2, 2), i[:, :1, None].expand(1, 2, 2)),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_out_of_range(name: str) -> None:
    program = ELSEWHERE[name]
    compiled = stoker.compile(program)
    good = PLACES.abs()
    torch.testing.assert_close(compiled(X, good), program(X, good))
    _same_error(program, compiled, X, good + 9)


def test_every_stage_knows_the_families() -> None:
    """Interpreter, Python and executor raise the same for each, and the first of several."""
    table = torch.arange(4.0)
    for kind, (error, words) in OUTSIDE.items():
        program = _look_up(kind)
        backends = generators([])
        plan = make_plan(program, {"cpu": backends["cpu"].target})
        kernels = build_kernels(plan, program.layouts, backends)
        runs = [
            lambda x, i, p=program: interpret(p, [x, i]),
            host_program(plan, [k.call for k in kernels]),
            executor(plan, program.layouts, kernels),
        ]
        for run in runs:
            assert torch.equal(run(table, torch.tensor([1, -1]))[0], torch.tensor([1.0, 3.0]))
            with pytest.raises(error) as raised:
                run(table, torch.tensor([0, 4]))
            assert str(raised.value).splitlines()[0] == words
    assert isinstance(outside_error(outside_code("element") | outside_code("row")), IndexError)


def _look_up(kind: str) -> Program:
    """y[i] = x[places[i]]"""
    program, device, i = Program(), torch.device("cpu"), symbol("i0")
    layout = lambda dtype, size: Layout(dtype, device, (constant(size),), (constant(1),))  # noqa: E731
    program.inputs = ["x", "places"]
    program.layouts |= {
        "x": layout(torch.float32, 4), "places": layout(torch.int64, 2), "y": layout(torch.float32, 2),
    }  # fmt: skip
    with using(Recorder()) as recorder:
        place = ops.indirect(ops.load("places", i, torch.int64), constant(4), kind)
        ops.store("y", i, ops.load("x", place, torch.float32))
    program.nodes.append(Loops(("y",), (Dimension(i, constant(2)),), (), tuple(recorder.instructions), device))
    program.outputs = [Stored("y", torch.float32, device, (constant(2),), (constant(1),))]
    check(program)
    return program


@pytest.mark.parametrize("name", COUNT)
def test_counted_from_the_end(name: str) -> None:
    program = COUNT[name]
    torch.testing.assert_close(stoker.compile(program)(X, PLACES), program(X, PLACES))


def test_a_reduced_value_read_on_a_condition(agree: Any) -> None:
    """One element an outer point, stored and read again by the same kernel: it is no scratch, which has an element for each inner."""

    def program(x: Any, y: Any) -> Any:
        totals = (x * y).sum(1, keepdim=True)
        return x - torch.cat([totals[:3] * 2, totals[3:]])

    agree([program], [torch.randn(6, 6), torch.randn(6, 6)], exact=False)
