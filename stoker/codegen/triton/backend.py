"""Triton kernels for CUDA devices."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from stoker import _C
from stoker.codegen.backend import Built, Launch, Site
from stoker.codegen.triton.host import host_kernel
from stoker.codegen.triton.target import cuda_target
from stoker.codegen.triton.tiling import tiling_of
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
        self._target = cuda_target(architecture, processors)

    @property
    def target(self) -> Target:
        return self._target

    def start(self) -> None:
        prepare_launching()
        pool().start()

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        units = [unit_of(k, tiling_of(k, self._target.processors)) for k in kernels]
        binaries = compile_all([Job(u.source, u.signature, u.aligned, u.warps, self.architecture) for u in units])
        return [_loaded(k, u, b) for k, u, b in zip(kernels, units, binaries)]


def _loaded(kernel: Kernel, unit: Unit, binary: Binary) -> Built:
    device = kernel.device.index if kernel.device.index is not None else torch.cuda.current_device()
    function = _function(device, binary)
    launch = Launch(function, binary.warps * LANES, binary.shared_bytes, unit.programs, unit.watches)
    return Built(launch, host_kernel(unit), unit.source)


@functools.cache
def _function(device: int, binary: Binary) -> int:
    return _C.load_kernel(device, binary.content, binary.name, binary.shared_bytes)
