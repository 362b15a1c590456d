"""Which of several builds of a kernel is fastest: each runs on memory of the sizes that the plan has.

In:  a plan without symbolic sizes, and for each build the addresses of its kernels.
Out: for each kernel, the number of the fastest build.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Mapping, Sequence

import torch

from stoker.loop.layout import Layout
from stoker.schedule.plan import Plan
from stoker.schedule.step import Run
from stoker.shape.expr import evaluate

ROUNDS = 7
CLEARLY = 0.97
"""Another build than the first must take at most this share of its time."""


def can_choose(plan: Plan) -> bool:
    return not plan.symbols


def fastest(plan: Plan, layouts: Mapping[str, Layout], builds: Sequence[Sequence[int]]) -> list[int]:
    """The best build of each kernel."""
    first = {step.kernel: step for step in reversed(plan.steps) if isinstance(step, Run)}
    chosen = []
    for number in range(len(plan.kernels)):
        if sys.stderr.isatty():
            sys.stderr.write(f"\rstoker: measuring kernel {number + 1} of {len(plan.kernels)}")
        chosen.append(_best(first[number], layouts, [build[number] for build in builds]))
    if sys.stderr.isatty():
        sys.stderr.write("\r" + " " * 60 + "\r")
    return chosen


def _best(step: Run, layouts: Mapping[str, Layout], addresses: Sequence[int]) -> int:
    """Rounds are interleaved, so that a change of the machine's speed meets all builds."""
    memory = {buffer: _filled(layouts[buffer]) for buffer in step.buffers}
    pointers = (ctypes.c_void_p * len(step.buffers))(*(memory[b].data_ptr() for b in step.buffers))
    kernels = [ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address) for address in addresses]
    shortest = [float("inf")] * len(kernels)
    for _ in range(ROUNDS):
        for position, kernel in enumerate(kernels):
            start = time.perf_counter()
            kernel(ctypes.addressof(pointers), None)
            shortest[position] = min(shortest[position], time.perf_counter() - start)
    best = min(range(len(kernels)), key=shortest.__getitem__)
    return best if shortest[best] < CLEARLY * shortest[0] else 0


def _filled(layout: Layout) -> torch.Tensor:
    """Memory of a layout: ones, and zeros where numbers may be indices."""
    make = torch.ones if layout.dtype.is_floating_point else torch.zeros
    return make(max(evaluate(layout.reach, {}), 1), dtype=layout.dtype)
