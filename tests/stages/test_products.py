"""Matrix products inside generated Triton, under its interpreter, equal eager; so does the oracle; and they compile for sm_90."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.runtime.cubin import Job, compile_all
from stoker.schedule.plan import make_plan
from stoker.schedule.step import Library
from tests.stages.interpreted import Interpreted, compile_interpreted
from tests.stages.kernel_oracle import run_kernel
from tests.stages.test_triton import single_graph

PROGRAMS: dict[str, Callable[..., Any]] = {
    "gelu": lambda x, w, b: F.gelu(x @ w),
    "bias": lambda x, w, b: F.relu(torch.addmm(b, x, w)),
    "linear": lambda x, w, b: F.silu(F.linear(x, w.t().contiguous(), b)),
    "residual": lambda x, w, b: torch.addmm(b, x, w) + x[:, : w.shape[1]] if x.shape[1] >= w.shape[1] else (x @ w) * 2,
    "own operand": lambda x, w, b: (x @ x.t()).relu() + 1,
    "transposed": lambda x, w, b: ((x @ w).t() * 2).contiguous(),
    "rows": lambda x, w, b: (x[1:] @ w).exp() * x[1:, :1],
    "batch": lambda x, w, b: torch.bmm(x.expand(3, *x.shape), w.expand(3, *w.shape)).tanh() + b,
    "heads": lambda x, w, b: (x @ w).view(x.shape[0], 2, -1).transpose(0, 1).contiguous().sigmoid(),
    "mask": lambda x, w, b: torch.where((x @ w) > 0, b, 0),
    "two": lambda x, w, b: F.gelu(x @ w) * (x @ (w * 2)),
}
SIZES = [(16, 32, 64), (33, 50, 70), (130, 128, 256), (1, 20, 34)]


def given(size: tuple[int, int, int], dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    rows, shared, columns = size
    torch.manual_seed(0)
    return [(torch.randn(s) / 4).to(dtype) for s in ((rows, shared), (shared, columns), (columns,))]


def compiled(program: Callable[..., Any], inputs: list[torch.Tensor], backend: Interpreted) -> list[torch.Tensor]:
    made = aot(
        single_graph(program, inputs)[0],
        inputs,
        forward_compiler=lambda m, f: compile_interpreted(m, f, backend),
        decompositions=decompositions(),
    )
    return list(made(*inputs))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, size: tuple[int, int, int]) -> None:
    inputs, program = given(size), PROGRAMS[name]
    backend = Interpreted(products=True)
    (found,) = compiled(program, inputs, backend)
    wanted = program(*inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
    assert found.stride() == wanted.stride()
    if size[0] > 1:
        assert any("tl.dot" in u.source for u in backend.units), "no product was taken in"


def test_what_others_read_stays_a_call() -> None:
    backend = Interpreted(products=True)
    inputs = given((16, 16, 32))
    found = compiled(lambda x, w, b: ((y := x @ w), y.relu()), inputs, backend)
    assert not any("tl.dot" in u.source for u in backend.units)
    torch.testing.assert_close(found[0], inputs[0] @ inputs[1], rtol=1e-2, atol=1e-2)
    for other in (
        lambda x, w, b: (x @ w).sum(0),
        lambda x, w, b: F.pad(x @ w, (1, 1)),
        lambda x, w, b: (x @ w)[:, ::2] * 2,
    ):
        compiled(other, inputs, backend)
    assert not any("tl.dot" in u.source for u in backend.units)


@pytest.mark.parametrize("size", [(256, 64, 128), (200, 64, 120), (250, 64, 72)], ids=str)
def test_neighbours_are_read_at_once(size: tuple[int, int, int]) -> None:
    """Triton is told how many columns lie side by side, also where tiles do not fill the product."""
    backend = Interpreted(products=True)
    inputs = given(size)
    (found,) = compiled(PROGRAMS["gelu"], inputs, backend)
    torch.testing.assert_close(found, PROGRAMS["gelu"](*inputs), rtol=1e-2, atol=1e-2)
    (unit,) = backend.units
    told = re.findall(r"near_columns = .*tl.multiple_of\(.*?, (\d+)\), \1\)", unit.source)
    assert told == ([] if size[2] == 128 else [str(math.gcd(size[2], 128))])


def test_float32_stays_a_call() -> None:
    backend = Interpreted(products=True)
    compiled(PROGRAMS["gelu"], given((16, 32, 64), torch.float32), backend)
    assert not any("tl.dot" in u.source for u in backend.units)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_oracle_agrees(name: str) -> None:
    """A kernel with a product, run by torch, does what the call and the kernel did."""
    inputs, program = given((6, 8, 16)), PROGRAMS[name]
    seen: list[Any] = []

    def compile_graph(module: Any, fakes: Any) -> Any:
        targets = {"cpu": Interpreted().target}
        lowered = lower_graph(module, targets)
        make_plan(lowered, targets, choose=lambda c: bool(seen.append((c, lowered.layouts))))
        return compile_interpreted(module, fakes)

    aot(single_graph(program, inputs)[0], inputs, forward_compiler=compile_graph, decompositions=decompositions())(
        *inputs
    )
    read_after = [(c, layouts) for c, layouts in seen if isinstance(c.parts[0][0], Library)]
    assert read_after
    for candidate, layouts in read_after:
        (step, _), (plain, kernel) = candidate.parts
        sizes = {n: [s.value for s in layouts[n].sizes] for n in {*candidate.run.buffers, *plain.buffers}}
        memory = {
            n: (torch.randn(s) / 4).to(layouts[n].dtype).as_strided(s, [t.value for t in layouts[n].strides])
            for n, s in sizes.items()
        }
        again = {n: m.clone() for n, m in memory.items()}
        run_kernel(candidate.kernel, [memory[b] for b in candidate.run.buffers], [])
        arguments = [
            again[t.buffer].as_strided([s.value for s in t.sizes], [s.value for s in t.strides], t.offset.value)
            for t in step.arguments
        ]
        again[str(step.results[0])] = step.operator(*arguments)
        run_kernel(kernel, [again[b] for b in plain.buffers], [])
        for n in kernel.written:
            torch.testing.assert_close(memory[plain.buffers[n]], again[plain.buffers[n]], rtol=1e-2, atol=1e-2)


def test_compiles_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Interpreted(products=True)
    for name in ("gelu", "linear", "batch", "two"):
        compiled(PROGRAMS[name], given((64, 64, 64)), backend)
    compiled(PROGRAMS["bias"], given((33, 50, 70)), backend)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90, u.stages) for u in backend.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
