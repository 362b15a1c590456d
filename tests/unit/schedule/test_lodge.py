"""Temporaries inside results that are not written yet: never where a step has been, or is while they live; the results are eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.codegen.cpp.backend import CppBackend
from stoker.codegen.executor import executor
from stoker.codegen.host import host_program
from stoker.loop.instruction import Load, Store
from stoker.loop.layout import Layout, contiguous
from stoker.loop.target import Target
from stoker.lower import matmul
from stoker.lower.driver import lower_graph
from stoker.pipeline import build_kernels, decompositions, improve
from stoker.schedule.kernel import Kernel
from stoker.schedule.lodge import lodgings
from stoker.schedule.overwrite import Lives
from stoker.schedule.plan import Plan, make_plan
from stoker.schedule.step import Allocate, Free, Library, Run, Step
from stoker.shape.expr import constant
from stoker.shape.walk import evaluate
from tests.stages.interpreted import Interpreted
from tests.stages.test_triton import single_graph


class Small(Interpreted):
    """A device whose temporaries all have memory of their own."""

    @property
    def target(self) -> Target:
        return replace(super().target, largest_in_arena=0)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "no bias": lambda x, w, b: F.linear(x.relu(), w),
    "two": lambda x, w, b: (F.linear(x, w), F.linear(x * 2, w, b)),
    "read afterwards": lambda x, w, b: ((y := F.linear(x, w)), y.sum(0), y.float().exp()),
    "by columns": lambda x, w, b: torch.addmm(b, x, w.t().contiguous()),
}


def planned(program: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[list[Plan], list[torch.Tensor]]:
    """The plans of a program, and what they compute."""
    plans: list[Plan] = []
    backend = Small()

    def compiler(module: Any, fakes: Any) -> Any:
        improve(module)
        lowered = lower_graph(module, {"cpu": backend.target})
        plans.append(make_plan(lowered, {"cpu": backend.target}))
        built = build_kernels(plans[-1], lowered.layouts, {"cpu": backend})
        return host_program(plans[-1], [b.call for b in built])

    graph = single_graph(program, inputs)[0]
    made = aot(graph, inputs, forward_compiler=compiler, decompositions=decompositions())
    return plans, list(made(*inputs))


@pytest.fixture
def odd_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "LARGE", 100)
    monkeypatch.setattr(matmul, "PIECE_ROWS", (8, 4))
    monkeypatch.setattr(matmul, "WHOLE_BYTES", 0)
    monkeypatch.setattr(matmul, "LAST_BYTES", 8 * 16 * 2)
    monkeypatch.setattr(matmul, "FEW", 1)


def places(kernel: Kernel, number: int) -> set[int]:
    """The elements of an argument that a kernel reads or writes, one by one."""
    loops = (*kernel.outer, *kernel.inner)
    indices = [
        i.index for p in kernel.phases for _, i in p.lines if isinstance(i, (Load, Store)) and i.buffer == f"a{number}"
    ]
    points = itertools.product(*(range(d.size.value or 0) for d in loops))
    return {evaluate(e, dict(zip((d.symbol for d in loops), p))) for p in points for e in indices}


@pytest.mark.parametrize("rows", [40, 100])
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_with_odd_rows(name: str, rows: int, odd_rows: None) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(s).to(torch.bfloat16) for s in ((rows, 16), (21, 16), (21,))]
    plans, found = planned(PROGRAMS[name], inputs)
    wanted = PROGRAMS[name](*inputs)
    for mine, eager in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(mine, eager, rtol=2e-2, atol=2e-2)
        assert mine.stride() == eager.stride()
    (plan,) = plans
    moved = [s for s in plan.steps if is_lodging(s)]
    assert moved, "nothing found room"
    for step in moved:
        assert_alone(plan, step)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_executor(name: str, odd_rows: None) -> None:
    """The same plan, with kernels in C++, run by the executor."""
    torch.manual_seed(0)
    inputs = [torch.randn(s).to(torch.bfloat16) for s in ((40, 16), (21, 16), (21,))]
    processor = CppBackend()
    target = replace(processor.target, largest_in_arena=0, matmul_alignment_bytes=16)

    def compiler(module: Any, fakes: Any) -> Any:
        improve(module)
        lowered = lower_graph(module, {"cpu": target})
        plan = make_plan(lowered, {"cpu": target})
        assert any(map(is_lodging, plan.steps))
        return executor(plan, lowered.layouts, build_kernels(plan, lowered.layouts, {"cpu": processor}))

    made = aot(
        single_graph(PROGRAMS[name], inputs)[0], inputs, forward_compiler=compiler, decompositions=decompositions()
    )
    wanted = PROGRAMS[name](*inputs)
    for _ in range(2):
        for mine, eager in zip(made(*inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            torch.testing.assert_close(mine, eager, rtol=2e-2, atol=2e-2)


def is_lodging(step: Step) -> bool:
    return isinstance(step, Library) and step.operator is torch.ops.aten.as_strided.default and step.aliases


def assert_alone(plan: Plan, lodging: Any) -> None:
    """Nothing was, or is, where a guest lies."""
    (guest,), (host, sizes, strides, offset) = lodging.results, lodging.arguments
    own = range(offset, offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides)))
    last = plan.steps.index(Free(guest))
    for step in plan.steps[:last]:
        if isinstance(step, Run) and host.buffer in step.buffers:
            touched = places(plan.kernels[step.kernel], step.buffers.index(host.buffer))
            assert touched.isdisjoint(own)
        elif isinstance(step, Library) and not is_lodging(step):
            used = [step.arguments, *(v for _, v in step.keywords)]
            assert host.buffer not in {getattr(t, "buffer", None) for part in used for t in flat(part)}
    assert any(isinstance(s, Allocate) and s.buffer == host.buffer for s in plan.steps[: plan.steps.index(lodging)])


def flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, (list, tuple)) else [value]


def layout(elements: int, dtype: torch.dtype = torch.float32) -> Layout:
    sizes = (constant(elements),)
    return Layout(dtype, torch.device("cpu"), sizes, contiguous(sizes))


def test_who_finds_no_room() -> None:
    """One that is too large, of another type, beside another guest, or gone before the host is made; and where a call has used the host."""
    layouts = {
        "host": layout(1000),
        "large": layout(1001),
        "other": layout(10, torch.int32),
        "a": layout(100),
        "b": layout(100),
        "late": layout(10),
        "early": layout(10),
    }
    call = Library(torch.ops.aten.neg.default, (), (), ("host",), (layouts["host"],), False, False)
    lives = Lives(
        {"early": 0, "host": 1, "large": 1, "other": 1, "a": 1, "b": 1, "late": 2},
        {"early": 0, "host": 2, "large": 1, "other": 1, "a": 1, "b": 1, "late": 2},
        set(),
    )
    steps: list[Step] = [Run(0, (), ()), Run(0, (), ()), call]
    guests = ["early", "large", "other", "a", "b", "late"]
    target = {"cpu": Small().target}
    found = lodgings(steps, [None], layouts, lives, guests, ["host"], target)  # type: ignore[list-item]  # not asked
    assert {name: room.offset for name, room in found.items()} == {"a": (1000 - 100) // 32 * 32}
