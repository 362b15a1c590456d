"""`agree`: run a program through every stage, and hold that each gives what eager gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

from stoker.autograd import aot
from stoker.pipeline import Record, compile_graph, decompositions
from tests.stages.loop_oracle import interpret

Agree = Callable[..., list[Record]]


@pytest.fixture
def agree() -> Agree:
    return _agree


def _agree(
    programs: Sequence[Callable[..., Any]], inputs: Sequence[Any], *, lowered: bool = True, exact: bool = True
) -> list[Record]:
    """The programs, as one graph, on the inputs: eager = graph = loops interpreted = plan in Python = plan in the executor.

    `lowered` asks that no operator was left to the library; `exact`, that the compiled results equal eager's bit for bit.
    """
    graph, records = Graph(), []
    places = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    expected = [_flat(p)(*inputs) for p in programs]
    calls = [graph.call_function(_flat(p), tuple(places)) for p in programs]
    graph.output(
        tuple(graph.call_function(operator.getitem, (c, k)) for c, e in zip(calls, expected) for k in range(len(e)))
    )

    def compile_all(module: GraphModule, fakes: list[Any]) -> Callable[..., Any]:
        records.append(Record())
        return _each_stage(module, compile_graph(module, fakes, records[-1]), records[-1])

    call = aot(
        GraphModule(torch.nn.Module(), graph),
        list(inputs),
        forward_compiler=compile_all,
        decompositions=decompositions(),
    )
    found = iter(call(*inputs))
    for number, results in enumerate(expected):
        for b in results:
            a = next(found)
            tolerance = {"rtol": 0, "atol": 0} if exact else {}
            torch.testing.assert_close(a, b, equal_nan=True, msg=lambda m, n=number: f"program {n}: {m}", **tolerance)
            assert a.stride() == b.stride(), f"program {number}"
            if exact and a.is_floating_point():
                assert torch.equal(torch.signbit(a) & ~a.isnan(), torch.signbit(b) & ~b.isnan()), (
                    f"program {number}: -0.0"
                )
    if lowered:
        assert [d for r in records for d in r.products["program"].declined] == []
    return records


def _flat(program: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> list[Any]:
        result = program(*given)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    return call


def _each_stage(module: GraphModule, compiled: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        expected, result = module.forward(*given), compiled(*given)
        for stage in (interpret(record.products["program"], given), record.products["host"](*given), result):
            for mine, graph in zip(stage, expected, strict=True):
                if isinstance(graph, torch.Tensor):
                    torch.testing.assert_close(mine, graph, equal_nan=True)
                    assert mine.stride() == graph.stride()
        return result

    return call
