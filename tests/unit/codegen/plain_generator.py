"""A third code generator, on a page: kernels as Python functions that call torch. The example that CONTRIBUTING.md walks through.

A value is a tensor over (outer points, inner points). It serves kernels that read, compute, reduce and write; those with scratch,
scans, computed indices or combining stores it leaves to the oracle, `tests/stages/kernel_oracle.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from stoker.codegen.backend import Built, HostKernel, Site
from stoker.codegen.cpp.target import CPU
from stoker.codegen.triton.expression import expression
from stoker.codegen.writer import Writer
from stoker.loop.index import Dimensions, count
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.schedule.epilogue import Candidate
from stoker.schedule.kernel import Kernel
from stoker.shape.expr import text
from tests.stages.kernel_oracle import run_kernel
from tests.stages.loop_oracle import MEANINGS

REDUCTIONS = {"sum": "sum(-1, dtype=v.dtype)", "max": "amax(-1)", "min": "amin(-1)", "any": "any(-1)", "all": "all(-1)"}


def _extreme(plain: Callable[..., Any], of_tensors: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Of sizes, which are plain numbers, or of places, which are tensors."""

    def extreme(a: Any, b: Any) -> Any:
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            return of_tensors(torch.as_tensor(a), torch.as_tensor(b))
        return plain(a, b)

    return extreme


_IN_INDICES = {
    "divide_down": operator.floordiv,
    "remainder_by_floor": operator.mod,
    "tl": SimpleNamespace(maximum=_extreme(max, torch.maximum), minimum=_extreme(min, torch.minimum)),
}
"""What the text of index expressions calls."""


class PlainGenerator:
    """Kernels for the processor, out of torch's own functions."""

    @property
    def target(self) -> Target:
        return replace(CPU, private=lambda *loops: False)

    def start(self) -> None:
        """Nothing to get ready."""

    def choose_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> bool:
        return False

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        return [Built(None, *_built(kernel)) for kernel in kernels]


def _built(kernel: Kernel) -> tuple[HostKernel, str]:
    if not _simple(kernel):
        return lambda buffers, sizes: run_kernel(kernel, buffers, sizes), ""
    source = emit(kernel)
    names: dict[str, Any] = {
        "torch": torch,
        "meaning": MEANINGS,
        **_IN_INDICES,
    }
    exec(source, names)  # noqa: S102  (our own text)
    return names["kernel"], source


def _simple(kernel: Kernel) -> bool:
    lines = [i for p in kernel.phases for _, i in p.lines]
    return not kernel.scratch and all(
        not isinstance(i, (Scan, Indirect))
        and not (isinstance(i, Reduce) and i.kind not in REDUCTIONS)
        and not (isinstance(i, Store) and i.combine)
        and not (isinstance(i, Load) and i.arguments)
        for i in lines
    )


def emit(kernel: Kernel) -> str:
    """The kernel as a Python function of buffers and sizes."""
    out = Writer("    ")
    with out.indented("def kernel(buffers, sizes):"):
        for n in range(kernel.sizes):
            out.line(f"n{n} = sizes[{n}]")
        for n in range(len(kernel.arguments)):
            reach = f"1 + sum((s - 1) * t for s, t in zip(buffers[{n}].shape, buffers[{n}].stride()))"
            out.line(f"a{n} = buffers[{n}].as_strided([{reach} if buffers[{n}].numel() else 0], [1])")
        _loops(out, kernel.outer, "(-1, 1)")
        _loops(out, kernel.inner, "(1, -1)")
        for phase in kernel.phases:
            for number, i in phase.lines:
                _line(out, kernel, number, i)
        out.line("return 0")
    return out.text()


def _loops(out: Writer, loops: Dimensions, shape: str) -> None:
    out.line(f"place = torch.arange({expression(count(loops), {})}).view{shape}")
    for loop in reversed(loops):
        size = expression(loop.size, {})
        out.line(f"{text(loop.symbol)}, place = place % ({size}), place // ({size})")


def _line(out: Writer, kernel: Kernel, number: int, i: LoopInstruction) -> None:
    values = [f"v{a}" for a in i.arguments]
    full = f"{expression(count(kernel.outer), {})}, {expression(count(kernel.inner), {})}"
    match i:
        case Load():
            words = f"{i.buffer}[torch.as_tensor({expression(i.index, {})})].view({i.dtype}).clone()"  # one element would be a view
        case Store():
            where = f"torch.as_tensor({expression(i.index, {})})"
            rows = expression(count(kernel.outer), {})
            out.line(f"shape = torch.broadcast_shapes({where}.shape, {values[0]}.shape, ({rows}, 1))")
            stored = kernel.arguments[int(i.buffer[1:])]
            out.line(f"{i.buffer}[{where}.expand(shape)] = {values[0]}.expand(shape).view({stored})")
            return
        case Number():
            value = f"float('{i.value}')" if isinstance(i.value, float) else i.words
            words = f"torch.full((1, 1), {value}, dtype={i.dtype})"
        case Index():
            words = f"torch.as_tensor({expression(i.expr, {})}).to({i.dtype})"
        case Reduce():
            out.line(f"v = {values[0]}.expand({full})")
            words = f"v.{REDUCTIONS[i.kind]}[:, None]"
        case Convert():
            words = f"{values[0]}.to({i.dtype})"
        case Apply():
            words = f"meaning[{i.operation!r}]({', '.join(values)})"
    out.line(f"v{number} = {words}")
