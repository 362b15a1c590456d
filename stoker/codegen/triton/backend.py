"""Triton kernels for CUDA devices."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from stoker import _C
from stoker.codegen.backend import Built, Launch, Site
from stoker.codegen.triton.choose import can_choose, fastest
from stoker.codegen.triton.host import host_kernel
from stoker.codegen.triton.stream import drawing_threads
from stoker.codegen.triton.target import cuda_target
from stoker.codegen.triton.tiling import Tiling, alternatives, tiling_of
from stoker.codegen.triton.unit import Unit, unit_of
from stoker.loop.target import Target
from stoker.runtime.cubin import Binary, Job, compile_all, pool
from stoker.runtime.device import prepare_launching
from stoker.schedule.kernel import Kernel

LANES = 32
"""Threads of a warp."""


class TritonBackend:
    """A source for each kernel, compiled by a pool of processes."""

    def __init__(self, architecture: int, processors: int) -> None:
        self.architecture = architecture
        self._target = cuda_target(architecture, processors, drawing_threads=drawing_threads)

    @property
    def target(self) -> Target:
        return self._target

    def start(self) -> None:
        prepare_launching()
        pool().start()

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        usual = [tiling_of(k, self._target.processors) for k in kernels]
        made = self.built(kernels, sites, usual)
        if not tune:
            return made
        others = [alternatives(k, t) if can_choose(s) else [] for k, t, s in zip(kernels, usual, sites)]
        flat = [(n, tiling) for n, tilings in enumerate(others) for tiling in tilings]
        tried = self.built([kernels[n] for n, _ in flat], [sites[n] for n, _ in flat], [t for _, t in flat])
        for number, built in enumerate(made):
            rivals = [b for (n, _), b in zip(flat, tried) if n == number]
            made[number] = fastest(sites[number], [built, *rivals]) if rivals else built
        return made

    def built(self, kernels: Sequence[Kernel], sites: Sequence[Site], tilings: Sequence[Tiling]) -> list[Built]:
        """Kernels cut into tiles of given sizes."""
        units = [unit_of(k, t, s.origins) for k, t, s in zip(kernels, tilings, sites)]
        jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, self.architecture) for u in units]
        return [_loaded(k, u, b) for k, u, b in zip(kernels, units, compile_all(jobs))]


def _loaded(kernel: Kernel, unit: Unit, binary: Binary) -> Built:
    device = kernel.device.index if kernel.device.index is not None else torch.cuda.current_device()
    launch = Launch(_function(device, binary), binary.warps * LANES, binary.shared_bytes, unit.programs, unit.watches)
    return Built(launch, host_kernel(unit), unit.source)


@functools.cache
def _function(device: int, binary: Binary) -> int:
    return _C.load_kernel(device, binary.content, binary.name, binary.shared_bytes)
