"""Means and moments in one walk, and exclusive or: each shape of kernel, against eager and the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import GraphModule

import stoker.codegen.cpp.backend as cpp
from stoker.autograd import aot
from stoker.codegen.cpp.shape import Shape, shape_of_kernel
from stoker.codegen.cpp.target import CPU
from stoker.codegen.generators import generators
from stoker.codegen.host import host_program
from stoker.loop.body import Recorder
from stoker.loop.check import Malformed, check
from stoker.loop.handler import ops, using
from stoker.loop.index import Dimension
from stoker.loop.instruction import Reduce
from stoker.loop.layout import Layout, contiguous
from stoker.loop.node import Loops, Program
from stoker.loop.view import Stored
from stoker.pipeline import Record, build_kernels, compile_graph, decompositions
from stoker.schedule.plan import make_plan
from stoker.shape.expr import constant, symbol
from tests.stages.conftest import Agree
from tests.stages.loop_oracle import interpret


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "CPU", replace(CPU, one_pass_bytes=8, one_pass_rows=2))


def _kinds(records: list[Record]) -> dict[Shape, set[str]]:
    return {
        shape_of_kernel(kernel): {i.kind for p in kernel.phases for _, i in p.lines if isinstance(i, Reduce)}
        for r in records
        for kernel in r.products["plan"].kernels
    }


CASES: list[tuple[tuple[int, ...], Any, Shape]] = [
    ((40, 5000), 1, Shape.ROWS), ((9, 7, 130), (0, 2), Shape.ROWS), ((300, 200), 0, Shape.COLUMNS), ((6, 70, 33), (0, 1), Shape.COLUMNS),
    ((20000,), 0, Shape.WHOLE), ((2, 40, 301), (1, 2), Shape.WHOLE),
]  # fmt: skip


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "dims", "chosen"), CASES)
def test_each_shape(agree: Agree, dtype: torch.dtype, shape: Any, dims: Any, chosen: Shape) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * 3 + 100).to(dtype)
    records = agree(
        [
            lambda x: torch.var_mean(x, dims),
            lambda x: torch.std(x, dims, correction=0, keepdim=True),
            lambda x: (x * 2).var(dims) + x.sum(dims),
        ],
        [x],
        exact=False,
    )
    assert {"mean", "moment"} <= _kinds(records)[chosen]


@pytest.mark.usefixtures("always")
def test_no_digits_are_lost() -> None:
    """The mean is a hundred thousand times the spread; and values that are no numbers stay such."""
    torch.manual_seed(0)
    for shape, dim in (((3, 9000), 1), ((9000, 3), 0), ((9000,), 0)):
        x = torch.randn(shape, dtype=torch.float64) * 1e-2 + 1e3
        given = [x.float()]
        compiled = _compile(lambda v, d=dim: torch.var_mean(v, d), given)
        truth = torch.var_mean(given[0].double(), dim)
        for found, wanted in zip(compiled(*given), truth):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=0)
        x = torch.zeros(shape)
        x.view(-1)[5] = float("inf")
        torch.testing.assert_close(compiled(x)[0], torch.var(x, dim), equal_nan=True)
        torch.testing.assert_close(compiled(x)[1], torch.mean(x, dim))


def _compile(function: Any, given: list[torch.Tensor]) -> Any:
    graph = torch.fx.Graph()
    places = [graph.placeholder(f"x{k}") for k in range(len(given))]
    call = graph.call_function(function, tuple(places))
    graph.output(tuple(graph.call_function(lambda r, k=k: r[k], (call,)) for k in range(2)))
    module = GraphModule(torch.nn.Module(), graph)
    return aot(module, given, forward_compiler=compile_graph, decompositions=decompositions())


def test_where_one_walk_pays(agree: Agree) -> None:
    def kinds(shape: tuple[int, ...], dims: Any) -> set[str]:
        found = _kinds(agree([lambda x: torch.var_mean(x, dims)], [torch.randn(shape)], exact=False))
        return set().union(*found.values())

    assert kinds((64, 16), 0) == {"mean", "moment"}
    assert kinds((63, 16), 0) == kinds((16, 64), 1) == kinds((4, 8, 5, 5), (0, 2, 3)) == {"sum"}
    assert kinds((1 << 20,), 0) == {"mean", "moment"}


def _reduction(kind: str, dtype: torch.dtype, rows: int, columns: int, *, across: bool) -> Program:
    """One reduction, along memory or across it."""
    program, device = Program(), torch.device("cpu")
    i, r = symbol("i0"), symbol("r0")
    sizes = (constant(rows), constant(columns))
    program.inputs = ["x"]
    program.layouts["x"] = Layout(dtype, device, sizes, contiguous(sizes))
    kept = (constant(columns if across else rows),)
    program.layouts["y"] = Layout(dtype, device, kept, (constant(1),))
    with using(Recorder()) as recorder:
        index = r * columns + i if across else i * columns + r
        ops.store("y", i, ops.reduce(kind, ops.load("x", index, dtype), dtype))
    inner = (Dimension(r, constant(rows if across else columns)),)
    program.nodes.append(Loops(("y",), (Dimension(i, kept[0]),), inner, tuple(recorder.instructions), device))
    program.outputs = [Stored("y", dtype, device, kept, (constant(1),))]
    return program


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([torch.int64, torch.uint8, torch.bool]),
    st.sampled_from([2, 3, 70]),
    st.sampled_from([2, 5, 700]),
    st.booleans(),
)
def test_exclusive_or(dtype: torch.dtype, rows: int, columns: int, across: bool) -> None:
    program = _reduction("xor_sum", dtype, rows, columns, across=across)
    check(program)
    x = torch.randint(0, 2 if dtype is torch.bool else 200, (rows, columns)).to(dtype)
    wanted = x[0] if across else x[:, 0]
    for k in range(1, rows if across else columns):
        wanted = wanted ^ (x[k] if across else x[:, k])
    backends = generators([])
    plan = make_plan(program, {"cpu": backends["cpu"].target})
    assert torch.equal(interpret(program, [x])[0], wanted)
    assert torch.equal(
        host_program(plan, [k.call for k in build_kernels(plan, program.layouts, backends)])(x)[0], wanted
    )


def test_kinds_want_their_types() -> None:
    for kind, dtype in (
        ("xor_sum", torch.float32),
        ("mean", torch.int64),
        ("moment", torch.bool),
        ("middle", torch.float32),
    ):
        with pytest.raises(Malformed):
            check(_reduction(kind, dtype, 2, 3, across=False))
