"""Random programs of elementwise operators, reductions, scans, scatters, windows and views, on inputs of all types and layouts:
eager = graph = loops interpreted = plan in Python = compiled."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule
from torch.nn.functional import max_pool2d, pad

from stoker.autograd import aot
from stoker.codegen.cpp.target import CPU
from stoker.loop.check import check
from stoker.lower.driver import lower_graph
from stoker.pipeline import Record, compile_graph, decompositions, improve
from stoker.schedule.plan import make_plan
from tests.stages.loop_oracle import interpret

UNARY = [
    torch.neg, torch.abs, torch.relu, torch.sqrt, torch.floor, torch.reciprocal, torch.sign, torch.round, torch.isnan,
    torch.logical_not, torch.square, torch.nan_to_num, lambda x: x.clamp(-1, 1), lambda x: x.to(torch.float32),
    lambda x: x.to(torch.int32) if not x.is_floating_point() else x.half(), lambda x: x > 0, lambda x: x * 2 + 1, torch.tril,
]  # fmt: skip
BINARY = [
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.div, torch.fmax, torch.copysign, torch.lt, torch.eq,
    lambda a, b: torch.where(a > b, a, b), lambda a, b: torch.where(a != 0, b, 1),
]  # fmt: skip
ALONG = {
    "sum": lambda x, d: x.sum(d, True), "amax": lambda x, d: x.amax(d, True), "argmin": lambda x, d: x.argmin(d),
    "any": lambda x, d: x.any(d), "prod": lambda x, d: x.prod(d), "cumsum": lambda x, d: x.cumsum(d),
    "cummax": lambda x, d: torch.cummax(x, d)[0], "cumprod": lambda x, d: x.cumprod(d), "flip": lambda x, d: x.flip(d),
    "roll": lambda x, d: x.roll(1, d), "softmax": lambda x, d: x.softmax(d), "var": lambda x, d: x.var(d),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d), "repeat": lambda x, d: x.repeat_interleave(2, d),
    "unbind": lambda x, d: x.unbind(d)[0], "stack": lambda x, d: torch.stack([x, x + x], d),
    "gather": lambda x, d: x.gather(d, torch.zeros_like(x, dtype=torch.int64)),
    "scatter_add": lambda x, d: x.scatter_add(d, torch.zeros_like(x, dtype=torch.int64), x),
    "index_add": lambda x, d: x.index_add(d, torch.zeros(x.shape[d], dtype=torch.int64), x),
    "index_fill": lambda x, d: x.index_fill(d, torch.zeros(1, dtype=torch.int64), 2),
    "index_select": lambda x, d: x.index_select(d, torch.arange(x.shape[d] - 1, -1, -1)),
}  # fmt: skip
MOVING = {
    "transpose": lambda x: x.transpose(-1, -2), "slice": lambda x: x[..., 1:], "step": lambda x: x[..., ::2], "pad": lambda x: pad(x, (1, 2), value=3),
    "reflect": lambda x: pad(x, (1, 1), mode="reflect"), "cat": lambda x: torch.cat([x, x + x], 0), "flatten": lambda x: x.flatten(),
    "expand": lambda x: x.unsqueeze(0).expand(2, *x.shape), "diagonal": lambda x: x.diagonal(), "reshape": lambda x: x.reshape(-1, 2),
    "scatter": lambda x: torch.select_scatter(x, x[..., 0] * 2, -1, 1), "pool": lambda x: max_pool2d(x, 2, 1, 1),
    "strided": lambda x: (x + 1).as_strided((2,), (1,), 1), "contiguous": lambda x: x.contiguous(),
}  # fmt: skip
SHAPES = [(4, 6), (6,), (4, 1), (1, 6), (2, 3, 4, 6), (3, 1, 1), ()]
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
LAYOUTS = [
    lambda x: x, lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() else x,
    lambda x: torch.stack([x, x], -1)[..., 0], lambda x: x[:1].expand(x.shape) if x.dim() else x,
]  # fmt: skip
LARGEST = 4096


def _step(draw: Any, values: list[torch.Tensor]) -> tuple[Any, tuple[int, ...]]:
    """An operator, and which values it is given."""
    pick = st.integers(0, len(values) - 1)
    a = draw(pick)
    match draw(st.sampled_from(["unary", "binary", "along", "moving"])):
        case "unary":
            return draw(st.sampled_from(UNARY)), (a,)
        case "binary":
            return draw(st.sampled_from(BINARY)), (a, draw(pick))
        case "along":
            function, dim = ALONG[draw(st.sampled_from(sorted(ALONG)))], draw(st.integers(0, 3))
            return lambda x, f=function, d=dim: f(x, d % max(x.dim(), 1)), (a,)
        case _:
            return MOVING[draw(st.sampled_from(sorted(MOVING)))], (a,)


def _steps(draw: Any, values: list[torch.Tensor]) -> list[tuple[Any, tuple[Any, ...]]]:
    """Operators on inputs and earlier results, each checked to run."""
    steps = []
    for _ in range(draw(st.integers(2, 7))):
        step = _step(draw, values)
        try:
            made = step[0](*(values[i] for i in step[1]))
        except (RuntimeError, IndexError, ValueError):
            continue
        if made.numel() <= LARGEST:
            values.append(made)
            steps.append(step)
    return steps


def _input(draw: Any) -> torch.Tensor:
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))
    plain = torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 9, shape).to(dtype)
    return draw(st.sampled_from(LAYOUTS))(plain)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs(data: Any) -> None:
    _run(data, _compare)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs_before_they_are_built(data: Any) -> None:
    """Without a C++ compiler, which takes most of the time: the graph, its loops interpreted, and a plan."""
    _run(data, _lowered)


def _run(data: Any, stages: Any) -> None:
    torch.manual_seed(0)
    inputs = [_input(data.draw) for _ in range(3)]
    values = list(inputs)
    steps = _steps(data.draw, values)
    outputs = sorted({len(values) - 1, data.draw(st.integers(3, len(values) - 1)) if steps else 0})
    if not steps:
        return
    module = _module(len(inputs), steps, outputs)
    expected = module(*inputs)
    compiled = aot(module, inputs, forward_compiler=stages, decompositions=decompositions())
    _same(compiled(*inputs), expected)


def _lowered(graph: GraphModule, fakes: list[Any]) -> Any:
    improve(graph)
    loops = lower_graph(graph, {"cpu": CPU})
    check(loops)
    make_plan(loops, {"cpu": CPU})

    def call(*given: Any) -> Any:
        found = interpret(loops, given)
        for mine, improved in zip(found, graph.forward(*given), strict=True):
            torch.testing.assert_close(
                mine, improved, equal_nan=True
            )  # strides are eager's, which a better graph need not keep
        return found

    return call


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
