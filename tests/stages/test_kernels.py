"""Kernels mean one thing: the oracle and the smallest code generator give what eager gives, on the programs of the Triton tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from stoker.autograd import aot
from stoker.codegen.backend import Built, Site
from stoker.codegen.host import host_program
from stoker.lower.driver import lower_graph
from stoker.pipeline import build_kernels, decompositions, improve
from stoker.schedule.kernel import Kernel
from stoker.schedule.plan import make_plan
from tests.stages.interpreted import Interpreted
from tests.stages.kernel_oracle import run_kernel
from tests.stages.test_triton import PROGRAMS, single_graph
from tests.unit.codegen.plain_generator import PlainGenerator


class Oracle(Interpreted):
    """Kernels of the GPU's target, by their meaning."""

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        return [Built(None, lambda b, s, k=k: run_kernel(k, b, s), "") for k in kernels]


@pytest.mark.parametrize("generator", [Oracle, PlainGenerator])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, generator: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    x = torch.randn(33, 40)
    backends = {"cpu": generator()}
    targets = {"cpu": backends["cpu"].target}

    def compiler(module: GraphModule, fakes: list[Any]) -> Any:
        improve(module)
        program = lower_graph(module, targets)
        plan = make_plan(program, targets)
        return host_program(plan, [b.call for b in build_kernels(plan, program.layouts, backends)])

    module, wanted = single_graph(PROGRAMS[name], [x])
    compiled = aot(module, [x], forward_compiler=compiler, decompositions=decompositions())
    for mine, eager in zip(compiled(x), wanted, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4)
