"""One corpus through every boundary: eager = graph = loops interpreted = plan in Python = plan in the executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from stoker.autograd import aot
from stoker.pipeline import Record, compile_graph, decompositions
from tests.stages.loop_oracle import interpret


def perceptron(x: Any, w: Any, b: Any) -> Any:
    h = torch.relu(F.linear(x, w, b))
    return (h.softmax(-1) * torch.tanh(h)).sum(), h


def norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x @ w.t(), (w.shape[0],), b, b) + 1


def views(x: Any, w: Any, b: Any) -> Any:
    return x.t().contiguous().view(2, -1) * 2, x[:, 1:].exp(), x.unsqueeze(1).expand(-1, 3, -1).sum((0, 1))


PROGRAMS = [perceptron, norm, views]


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*s, requires_grad=True) for s in ((6, 8), (16, 8), (16,))]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_stages_agree(program: Callable[..., Any]) -> None:
    traced = _trace(program)
    given, again = inputs(), inputs()
    call = aot(traced, given, forward_compiler=_compare, decompositions=decompositions())
    results, expected = _tuple(call(*given)), _tuple(program(*again))
    for result, wanted in zip(results, expected):
        torch.testing.assert_close(result, wanted)
        assert result.stride() == wanted.stride()
    sum(r.sum() for r in results).backward()
    sum(r.sum() for r in expected).backward()
    for mine, eager in zip(given, again):
        torch.testing.assert_close(mine.grad, eager.grad)


def _trace(program: Callable[..., Any]) -> GraphModule:
    module = torch.fx.symbolic_trace(program)
    output = next(n for n in module.graph.nodes if n.op == "output")
    if not isinstance(output.args[0], (list, tuple)):
        output.args = ((output.args[0],),)
        module.recompile()
    return module


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _compare(module: GraphModule, fakes: list[Any]) -> Callable[..., Any]:
    """A compiler that runs every stage and holds that they agree."""
    record = Record()
    compiled = compile_graph(module, fakes, record=record)

    def call(*given: Any) -> Any:
        expected = module.forward(*given)
        result = compiled(*given)
        for stage in (interpret(record.products["program"], given), record.products["host"](*given), result):
            for mine, graph in zip(stage, expected):
                if isinstance(graph, torch.Tensor):
                    torch.testing.assert_close(mine, graph)
                    assert mine.stride() == graph.stride()
        return result

    return call
