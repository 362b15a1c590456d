"""The C++ kernels of typical graphs, as text. `STOKER_UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.codegen.cpp.kernel import emit
from stoker.codegen.cpp.target import CPU
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.schedule.kernel import kernel_text
from stoker.schedule.plan import make_plan

TARGETS = {"cpu": CPU}
HERE = Path(__file__).parent / "kernels"

x, w = torch.randn(6, 40), torch.randn(40)
image, places = torch.randn(2, 3, 8, 8), torch.tensor([3, 0, 5])

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "pointwise": (lambda a, b: torch.sigmoid(a) * b + 1, (x, x)),
    "broadcast_half": (lambda a, b: (a + b).relu(), (x.half(), w.half())),
    "softmax": (lambda a: torch.softmax(a, -1), (x,)),
    "layer_norm": (lambda a, scale: F.layer_norm(a, (40,), scale, scale), (x, w)),
    "column_sums": (lambda a: (a * a).sum(0), (x,)),
    "column_sums_of_joined_rows": (lambda a, b: (torch.cat([a[:1], b]) + 0.1).rsqrt().sum(0), (x.abs(), x.abs())),
    "whole_mean": (lambda a: a.mean(), (x,)),
    "transposed_add": (lambda a, b: a.t() + b, (torch.randn(16, 40), torch.randn(40, 16))),
    "embedding": (lambda table, at: table[at] * 2, (x, places)),
    "scatter_add": (lambda a, at, b: a.index_add(0, at, b), (x, places, x[:3].clone())),
    "running_sum": (lambda a: torch.cumsum(a, -1), (x,)),
    "max_pool": (lambda a: F.max_pool2d(a, 2), (image,)),
    "argmax": (lambda a: a.argmax(-1), (x,)),
}


def _traced(program: Callable[..., Any], count: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    inputs = [torch.fx.Proxy(graph.placeholder(f"input_{n}"), tracer) for n in range(count)]
    graph.output((program(*inputs).node,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str) -> None:
    program, inputs = PROGRAMS[name]
    found: list[str] = []

    def keep(module: Any, fakes: Any) -> Any:
        for number, kernel in enumerate(make_plan(lower_graph(module, TARGETS), TARGETS).kernels):
            words = kernel_text(kernel).replace("\n", "\n// ")
            found.append(f"// {words}\n{emit(f'kernel_{number}', kernel)}")
        return module.forward

    with torch.no_grad():
        aot(_traced(program, len(inputs)), list(inputs), forward_compiler=keep, decompositions=decompositions())
    path, text = HERE / f"{name}.cpp", "\n".join(found)
    if os.environ.get("STOKER_UPDATE_GOLDEN"):
        HERE.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
