"""Random programs whose buffers die, are written over, and run in another order: results are eager's, inputs stay as they were.

Operators that the library runs stand between those that become kernels, so that there is memory to plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule

import stoker
from stoker.autograd import aot
from stoker.pipeline import Record, compile_graph, decompositions
from tests.unit.schedule.plans import assert_memory_sound

SIZE = 6
ONE: list[Callable[[Any], Any]] = [
    torch.relu, lambda x: x * 0.5, lambda x: x.softmax(-1), lambda x: x.softmax(0), lambda x: x - x.mean(1, True),
    lambda x: x.t(), lambda x: x.t().contiguous(), lambda x: x.flip(0), lambda x: x.cumsum(0) * 0.1, lambda x: x + x.t(),
    lambda x: x.sum(0, True).expand(SIZE, SIZE), lambda x: x.sort(0).values, lambda x: x.reshape(2, -1).sum(0).repeat(2).view(SIZE, SIZE),
    lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3] * 0.1, padding=1)[0, 0], lambda x: x.to(torch.float64).float(),
    lambda x: x.roll(1, 1), lambda x: torch.cat([x[:3] * 2, x[3:]]), lambda x: torch.linalg.qr(x)[1].abs(), lambda x: (x > 0).float(),
]  # fmt: skip
TWO: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a @ b * 0.1, torch.add, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b * 0.5),
    lambda a, b: torch.addmm(a[0], a, b) * 0.1, lambda a, b: a - b.t(), lambda a, b: (a @ b).softmax(-1),
    lambda a, b: torch.layer_norm(a, (SIZE,)) + b, lambda a, b: torch.tanh(a @ b),
]  # fmt: skip

Step = tuple[Callable[..., Any], tuple[int, ...]]


@st.composite
def programs(draw: Any) -> tuple[list[Step], list[int]]:
    """Steps on two inputs and earlier results, and which results are returned."""
    steps: list[Step] = []
    for number in range(draw(st.integers(3, 12))):
        recent = st.integers(max(0, number - 2), number + 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(ONE)), (draw(recent),)))
        else:
            steps.append((draw(st.sampled_from(TWO)), (draw(recent), draw(st.integers(0, number + 1)))))
    outputs = {len(steps) + 1} | draw(st.sets(st.integers(2, len(steps) + 1), max_size=2))
    return steps, sorted(outputs)


def _run(steps: list[Step], outputs: list[int], a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values = [a, b]
    for function, which in steps:
        values.append(function(*(values[k] for k in which)))
    return tuple(values[k] for k in outputs)


def _inputs(**how: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(SIZE, SIZE, **how) for _ in range(2)]


def _same(found: Any, expected: Any) -> None:
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert mine.stride() == other.stride()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_plans_give_eagers_results(program: tuple[list[Step], list[int]]) -> None:
    steps, outputs = program
    graph = Graph()
    nodes = [graph.placeholder("a"), graph.placeholder("b")]
    for function, which in steps:
        nodes.append(graph.call_function(function, tuple(nodes[k] for k in which)))
    graph.output(tuple(nodes[k] for k in outputs))
    records: list[Record] = []

    def compile_one(module: GraphModule, fakes: list[Any]) -> Any:
        records.append(Record())
        compiled = compile_graph(module, fakes, records[-1])

        def call(*given: Any) -> Any:
            before = [g.clone() for g in given]
            expected = module.forward(*given)
            for stage in (records[-1].products["host"], compiled, compiled):
                _same(stage(*given), expected)
            assert all(torch.equal(x, y) for x, y in zip(before, given))
            return expected

        return call

    inputs = _inputs()
    compiled = aot(
        GraphModule(torch.nn.Module(), graph), inputs, forward_compiler=compile_one, decompositions=decompositions()
    )
    _same(compiled(*inputs), _run(steps, outputs, *inputs))
    for record in records:
        assert_memory_sound(record.products["plan"])


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.booleans())
def test_training_gives_eagers_gradients(program: tuple[list[Step], list[int]], dynamic: bool) -> None:
    steps, outputs = program
    stoker.reset()
    compiled = stoker.compile(lambda a, b: _run(steps, outputs, a, b), dynamic=dynamic)
    gradients = []
    for function in (compiled, compiled, lambda a, b: _run(steps, outputs, a, b)):
        inputs = _inputs(requires_grad=True)
        total = sum(r.float().square().sum() for r in function(*inputs) if r.requires_grad)
        if isinstance(total, torch.Tensor):
            total.backward()
        gradients.append([x.grad for x in inputs])
    *found, expected = gradients
    for mine in found:
        for x, y in zip(mine, expected):
            assert (x is None) == (y is None)
            if y is not None and y.isfinite().all():
                torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-3)
