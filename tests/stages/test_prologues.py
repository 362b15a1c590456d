"""Operands that a matrix product computes where it reads them, in generated Triton under its interpreter, equal eager; so does the oracle; and
they compile for sm_90."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.loop.layout import Layout
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.runtime.cubin import Job, compile_all
from stoker.schedule.epilogue import Candidate
from stoker.schedule.plan import make_plan
from stoker.schedule.product import Prologue
from stoker.schedule.step import Run
from tests.stages.interpreted import Interpreted, compile_interpreted
from tests.stages.kernel_oracle import run_kernel
from tests.stages.test_products import compiled, given
from tests.stages.test_triton import single_graph

PROGRAMS: dict[str, Callable[..., Any]] = {
    "left": lambda x, w, b: F.silu(x) @ w,
    "two inputs": lambda x, w, b: (F.gelu(x) * x.flip(0)) @ w,
    "right": lambda x, w, b: x @ (w * b),
    "both": lambda x, w, b: x.exp() @ (w * 0.5 + b),
    "with a reader": lambda x, w, b: F.relu(torch.addmm(b, x.sigmoid(), w)) * 2,
    "transposed": lambda x, w, b: (x.t().contiguous() * 2).t() @ w,
    "transposed weights": lambda x, w, b: x @ (w.t() * 2).contiguous().t(),
    "of rows": lambda x, w, b: (x * x[:, :1] + x[:1]) @ w,
    "batch": lambda x, w, b: torch.bmm(x.expand(3, *x.shape).cos(), w.expand(3, *w.shape)),
    "of whole numbers": lambda x, w, b: x @ ((w * 100).to(torch.int8).half() * b),
    "not 0 at 0": lambda x, w, b: (x + 3).exp2() @ w.cos(),
    "padded": lambda x, w, b: (F.pad(x[:, 2:], (1, 1), value=0.5) + 1) @ w,
}
SIZES = [(16, 32, 64), (33, 50, 70), (130, 128, 100), (1, 20, 34)]


class Taking(Interpreted):
    """A back end that takes every operand into its product, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(products=True)
        self.asked: list[Candidate] = []

    def choose_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> bool:
        self.asked.append(candidate)
        return True

    @property
    def made(self) -> list[Prologue]:
        products = [c.kernel.product for c in self.asked]
        return [side for p in products if p is not None for side in (p.left, p.right) if isinstance(side, Prologue)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, size: tuple[int, int, int]) -> None:
    inputs, program = given(size), PROGRAMS[name]
    backend = Taking()
    (found,) = compiled(program, inputs, backend)
    wanted = program(*inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=2e-2)
    assert found.stride() == wanted.stride()
    if size[0] > 1 and size[1] < 100:
        assert backend.made, "no operand was taken in"


STAYING: dict[str, Callable[..., Any]] = {
    "two readers": lambda x, w, b: ((y := x.exp()) @ w, y + 1),
    "two products": lambda x, w, b: ((y := x.exp()) @ w, y @ (w * 2)[:, :16]),
    "itself": lambda x, w, b: (y := x.exp()) @ y.t(),
    "a reduction": lambda x, w, b: torch.softmax(x.float(), -1).half() @ w,
    "a gather": lambda x, w, b: x[torch.arange(x.shape[0]).flip(0)] @ w,
}


@pytest.mark.parametrize("name", STAYING)
def test_what_others_read_is_right(name: str) -> None:
    inputs, backend = given((24, 32, 48)), Taking()
    wanted = STAYING[name](*inputs)
    found = compiled(STAYING[name], inputs, backend)
    for mine, eager in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-2, atol=2e-2)
    if name in ("two readers", "itself"):
        assert not backend.made


def test_what_is_changed_between_is_read_before() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        made = x * 2
        x.add_(1)
        return made @ w, x.clone()

    inputs = given((24, 32, 48))
    graph, wanted = single_graph(program, [i.clone() for i in inputs])
    made = aot(
        graph,
        inputs,
        forward_compiler=lambda m, f: compile_interpreted(m, f, Taking()),
        decompositions=decompositions(),
    )
    for mine, eager in zip(made(*inputs), wanted, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_oracle_agrees(name: str) -> None:
    """A kernel that computes an operand, run by torch, does what the steps did that it replaces."""
    inputs, program = given((6, 8, 16)), PROGRAMS[name]
    seen: list[tuple[Candidate, Mapping[str, Layout]]] = []

    def compile_graph(module: Any, fakes: Any) -> Any:
        targets = {"cpu": Interpreted().target}
        lowered = lower_graph(module, targets)

        def choose(candidate: Candidate) -> bool:
            seen.append((candidate, lowered.layouts))
            return True

        make_plan(lowered, targets, choose=choose)
        return compile_interpreted(module, fakes)

    aot(single_graph(program, inputs)[0], inputs, forward_compiler=compile_graph, decompositions=decompositions())
    assert seen
    for candidate, layouts in seen:
        names = {*candidate.run.buffers}
        for step, _ in candidate.parts:
            names |= {*step.buffers} if isinstance(step, Run) else {str(step.results[0])}
            names |= set() if isinstance(step, Run) else {t.buffer for t in step.arguments}
        memory = {n: filled(layouts[n]) for n in sorted(names)}
        again = {n: filled(layouts[n]).copy_(m) for n, m in memory.items()}
        run_kernel(candidate.kernel, [memory[b] for b in candidate.run.buffers], [])
        for step, kernel in candidate.parts:
            if isinstance(step, Run):
                assert kernel is not None
                run_kernel(kernel, [again[b] for b in step.buffers], [])
            else:
                operands = [
                    again[t.buffer].as_strided([s.value for s in t.sizes], [s.value for s in t.strides], t.offset.value)
                    for t in step.arguments
                ]
                again[str(step.results[0])] = step.operator(*operands)
        for n in candidate.kernel.written:
            name = candidate.run.buffers[n]
            torch.testing.assert_close(memory[name], again[name], rtol=1e-2, atol=1e-2)


def filled(layout: Layout) -> torch.Tensor:
    sizes, strides = ([s.value for s in numbers] for numbers in (layout.sizes, layout.strides))
    made: torch.Tensor = torch.empty_strided(sizes, strides, dtype=layout.dtype)  # type: ignore[arg-type]
    return made.copy_(torch.rand(made.shape) / 2)


def test_compiles_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Taking()
    for name in ("both", "of whole numbers", "with a reader", "batch"):
        compiled(PROGRAMS[name], given((64, 64, 64)), backend)
    compiled(PROGRAMS["both"], given((33, 50, 70)), backend)
    assert backend.made
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90, u.stages) for u in backend.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
