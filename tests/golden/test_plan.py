"""Loops and plans of small programs, as text. `STOKER_UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.codegen.cpp.target import CPU
from stoker.loop.text import program_text
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.schedule.plan import make_plan, plan_text

TARGETS = {"cpu": CPU}
HERE = Path(__file__).parent / "plan"


def softmax(x: Any, w: Any, b: Any) -> Any:
    return (torch.softmax(x, -1),)


def linear_gelu(x: Any, w: Any, b: Any) -> Any:
    return (F.gelu(F.linear(x, w, b)) * 2,)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return (F.layer_norm(x, (8,)).t().contiguous(),)


def concatenation(x: Any, w: Any, b: Any) -> Any:
    return (torch.cat([x.exp(), torch.relu(w)]).sum(0),)


@pytest.mark.parametrize("program", [softmax, linear_gelu, layer_norm, concatenation], ids=lambda p: p.__name__)
def test_text(program: Callable[..., Any]) -> None:
    found: list[str] = []

    def keep(module: Any, fakes: Any) -> Any:
        lowered = lower_graph(module, TARGETS)
        found.append(f"# loops\n{program_text(lowered)}\n\n# plan\n{plan_text(make_plan(lowered, TARGETS))}\n")
        return module.forward

    inputs = [torch.randn(6, 8), torch.randn(16, 8), torch.randn(16)]
    aot(torch.fx.symbolic_trace(program), inputs, forward_compiler=keep, decompositions=decompositions())
    path = HERE / f"{program.__name__}.txt"
    if os.environ.get("STOKER_UPDATE_GOLDEN"):
        path.write_text(found[0])
    assert found[0] == path.read_text()
