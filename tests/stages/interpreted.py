"""Triton's code generator on the processor: sources run under Triton's interpreter, on tensors of the CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.fx import GraphModule

import stoker
from stoker import pipeline
from stoker.codegen.backend import Built, Site
from stoker.codegen.host import host_program
from stoker.codegen.triton.host import host_kernel
from stoker.codegen.triton.target import cuda_target
from stoker.codegen.triton.tiling import tiling_of
from stoker.codegen.triton.unit import Unit, unit_of
from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.lower.driver import lower_graph
from stoker.pipeline import build_kernels, improve
from stoker.schedule.epilogue import Candidate
from stoker.schedule.kernel import Kernel
from stoker.schedule.plan import make_plan
from stoker.schedule.step import Library, Step

PROCESSORS = 132


class Libdevice:
    """The device's mathematics library, by torch's functions."""

    NAMES: ClassVar[dict[str, Callable[..., Any]]] = {
        "rint": torch.round,
        "fast_sinf": torch.sin,
        "fast_expf": torch.exp,
    }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = self.NAMES.get(name) or getattr(torch, name)

        def call(*given: Any) -> Any:
            from triton.language.core import block_type, tensor
            from triton.runtime.interpreter import TensorHandle

            kind = given[0].handle.dtype
            values = [torch.from_numpy(g.handle.data) for g in given]
            made = function(*values).numpy().astype(values[0].numpy().dtype)
            shapes = [g.type for g in given if g.type.is_block()]
            return tensor(TensorHandle(made, kind), block_type(kind, list(made.shape)) if shapes else given[0].type)

        return call


LIBDEVICE = Libdevice()


def reduce_by_halves(self: Any, given: Sequence[Any]) -> list[Any]:
    """In place of the interpreter's walk from element to element: the first half of a tile with the second, until one is left."""
    tiles, axis = [g.handle.data for g in given], self.axis
    while tiles[0].shape[axis] > 1:
        parts = [np.split(tile, 2, axis) for tile in tiles]
        halves = [self.to_tensor(p[side], g.dtype) for side in (0, 1) for p, g in zip(parts, given)]
        made = self.combine_fn.fn(*halves)
        tiles = [m.handle.data for m in (made if isinstance(made, tuple) else (made,))]
    return [self.to_tensor(np.squeeze(tile, axis), g.dtype) for tile, g in zip(tiles, given)]


@functools.cache
def quicken() -> None:
    from triton.runtime.interpreter import ReduceOps

    ReduceOps.generic_reduce = reduce_by_halves


class Generator:
    """A CUDA device's generator, in place of the operator that asks one."""

    def __init__(self, threads: int, seed: int, offset: int = 0) -> None:
        self.threads, self.seed, self.offset = threads, seed, offset

    def draw(self, device: torch.device, increment: int) -> list[torch.Tensor]:
        words = [torch.tensor(number) for number in (self.seed, 0, self.offset, 0)]
        self.offset += increment
        return words


def read_too_soon(source: str) -> str | None:
    """A line of a source that reads what the program wrote, with no barrier since: other threads may not have done it yet. The interpreter
    has no threads."""
    fresh: set[str] = set()
    for line in source[source.rindex("@triton.jit") :].splitlines():
        if "tl.debug_barrier()" in line:
            fresh.clear()
        elif found := re.search(r"tl\.load\((\w+) \+", line):
            if found[1] in fresh:
                return line
        elif found := re.search(r"tl\.store\((\w+) \+", line):
            fresh.add(found[1])
    return None


class Interpreted:
    """A back end whose target is a GPU in everything but where its memory is."""

    def __init__(self, generator: Generator | None = None, products: bool = False) -> None:
        self.units: list[Unit] = []
        self.generator, self.products = generator, products
        quicken()

    @property
    def target(self) -> Target:
        threads = self.generator.threads if self.generator else 0
        return cuda_target(90, PROCESSORS, device="cpu", drawing_threads=lambda: threads)

    def start(self) -> None:
        pass

    def choose_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> bool:
        return self.products

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        units = [unit_of(k, tiling_of(k, PROCESSORS), s.origins) for k, s in zip(kernels, sites)]
        self.units += units
        for unit in units:
            assert read_too_soon(unit.source) is None, unit.source
        return [Built(None, host_kernel(u, LIBDEVICE), u.source) for u in units]


def compile_interpreted(
    module: GraphModule, fakes: list[Any], backend: Interpreted | None = None, *, measured: bool = True
) -> Callable[..., tuple[Any, ...]]:
    """A functional graph through lowering, scheduling and Triton. Products are as if measured, unless they are to be chosen by rule."""
    backends = {"cpu": backend or Interpreted()}
    targets = {"cpu": backends["cpu"].target}
    improve(module)
    program = lower_graph(module, targets)
    plan = make_plan(
        program,
        targets,
        choose=(lambda candidate: backends["cpu"].choose_product(candidate, program.layouts)) if measured else None,
    )
    if backend is not None and backend.generator is not None:
        plan = replace(plan, steps=tuple(_drawing(step, backend.generator) for step in plan.steps))
    return host_program(plan, [b.call for b in build_kernels(plan, program.layouts, backends)])


def _drawing(step: Step, generator: Generator) -> Step:
    if isinstance(step, Library) and step.operator is torch.ops.stoker.draw.default:
        return replace(step, operator=generator.draw)
    return step


def in_place_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> Interpreted:
    """From here on, for a test, graphs of the processor run through generated Triton."""
    made = Interpreted()
    monkeypatch.setattr(pipeline, "generators", lambda devices: {"cpu": made})
    monkeypatch.setattr(
        pipeline,
        "executor",
        lambda plan, layouts, kernels, otherwise=None: host_program(plan, [k.call for k in kernels]),
    )
    stoker.reset()
    return made
