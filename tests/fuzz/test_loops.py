"""Random programs of elementwise operators, reductions and views: eager = loops interpreted = compiled, exactly where eager is."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule

from stoker.autograd import aot
from stoker.loop.interpret import interpret
from stoker.pipeline import Record, compile_graph, decompositions

aten = torch.ops.aten
UNARY = [torch.neg, torch.abs, torch.relu, torch.sqrt, torch.floor, torch.reciprocal]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.div]
SHAPES = [(4, 6), (6,), (4, 1), (1, 6), (2, 3, 4, 6), (3, 1, 1)]


def _steps(draw: Any, values: list[torch.Tensor]) -> list[tuple[Any, tuple[Any, ...]]]:
    """Operators on inputs and earlier results, each checked to run."""
    steps = []
    for _ in range(draw(st.integers(2, 7))):
        pick = st.integers(0, len(values) - 1)
        kind = draw(st.sampled_from(["unary", "binary", "sum", "amax", "transpose", "slice", "cat"]))
        a = draw(pick)
        match kind:
            case "unary":
                step = (draw(st.sampled_from(UNARY)), (a,))
            case "binary":
                step = (draw(st.sampled_from(BINARY)), (a, draw(pick)))
            case "sum" | "amax":
                if not values[a].dim():
                    continue
                function = torch.sum if kind == "sum" else torch.amax
                dim = draw(st.integers(0, values[a].dim() - 1))
                step = (lambda x, f=function, d=dim: f(x, d, True), (a,))
            case "transpose":
                if values[a].dim() < 2:
                    continue
                step = (lambda x: x.transpose(-1, -2), (a,))
            case "slice":
                if not values[a].dim() or values[a].shape[-1] < 2:
                    continue
                step = (lambda x: x[..., 1:], (a,))
            case _:
                step = (lambda x: torch.cat([x, x * 2], 0) if x.dim() else x * 1, (a,))
        try:
            values.append(step[0](*(values[i] for i in step[1])))
        except RuntimeError:
            continue
        steps.append(step)
    return steps


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs(data: Any) -> None:
    torch.manual_seed(0)
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
    inputs = [torch.randn(data.draw(st.sampled_from(SHAPES))).to(dtype) for _ in range(3)]
    values = list(inputs)
    steps = _steps(data.draw, values)
    outputs = sorted({len(values) - 1, data.draw(st.integers(3, len(values) - 1)) if steps else 0})
    if not steps:
        return
    module = _module(len(inputs), steps, outputs)
    expected = module(*inputs)
    compiled = aot(module, inputs, forward_compiler=_compare, decompositions=decompositions())
    _same(compiled(*inputs), expected)


def _compare(graph: GraphModule, fakes: list[Any]) -> Any:
    """Every stage against the one before it."""
    record = Record()
    compiled = compile_graph(graph, fakes, record)

    def call(*given: Any) -> Any:
        expected, result = graph.forward(*given), compiled(*given)
        for found in (interpret(record.products["program"], given), record.products["host"](*given), result):
            _same(found, expected)
        return result

    return call


def _same(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
        assert a.stride() == b.stride()


def _module(count: int, steps: list[tuple[Any, tuple[Any, ...]]], outputs: list[int]) -> GraphModule:
    graph = Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(count)]
    for function, arguments in steps:
        nodes.append(graph.call_function(function, tuple(nodes[i] for i in arguments)))
    graph.output(tuple(nodes[i] for i in outputs))
    return GraphModule(torch.nn.Module(), graph)
