"""Triton kernels for CUDA devices."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from stoker import _C
from stoker.codegen.backend import Built, Launch, LaunchBatch, Site
from stoker.codegen.triton.batch import FILL, PARAMETERS, WORDS, fill_signature, fill_source, places
from stoker.codegen.triton.choose import Answer, buffers_of, can_choose, fastest, fastest_product, is_known, remembered
from stoker.codegen.triton.host import host_kernel
from stoker.codegen.triton.stream import drawing_threads
from stoker.codegen.triton.target import cuda_target
from stoker.codegen.triton.tiling import LANES, Tiling, alternatives, product_tilings, tiling_of
from stoker.codegen.triton.unit import Unit, unit_of
from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.loop.text import layout_text
from stoker.runtime.cubin import Binary, Job, compile_all, pool
from stoker.runtime.device import prepare_launching
from stoker.schedule.epilogue import Candidate
from stoker.schedule.kernel import Kernel
from stoker.schedule.step import Library
from stoker.shape.expr import Expr, constant

OVERLAPS_FROM = 90
"""The compute capability from which on a kernel can be placed before the one ahead of it has ended."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A kernel, and ways to cut it of which the fastest is looked for; the usual one first."""

    kernel: Kernel
    site: Site
    tilings: tuple[Tiling, ...]
    question: tuple[str, ...]
    """What `stoker.runtime.choices` is asked."""


class TritonBackend:
    """A source for each kernel, compiled by a pool of processes."""

    def __init__(self, architecture: int, processors: int) -> None:
        self.architecture = architecture
        self._unit_of = functools.partial(unit_of, overlaps=architecture >= OVERLAPS_FROM)
        self._products: dict[Kernel, Tiling | None] = {}
        """How kernels with a matrix product are cut best, by measuring; None for one that the library is better at."""
        self._target = cuda_target(architecture, processors, drawing_threads=drawing_threads)

    @property
    def target(self) -> Target:
        return self._target

    def start(self) -> None:
        prepare_launching()
        pool().start()

    def choose_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> bool:
        kernel = candidate.kernel
        if kernel not in self._products:
            self._products[kernel] = self._fastest_product(candidate, layouts)
        return self._products[kernel] is not None

    def _fastest_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> Tiling | None:
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        shared_bytes = device.shared_memory_per_block_optin  # type: ignore[attr-defined]  # torch's stubs lack it
        tilings = product_tilings(candidate.kernel, shared_bytes)
        before = [k for _, k in candidate.parts if k is not None]
        kernels = [*before, *(candidate.kernel for _ in tilings)]
        subject = ", ".join(str(step.operator) for step, _ in candidate.parts if isinstance(step, Library)) or "product"
        site = Site((), (subject, "and what is beside it"))
        cut = [*(self._products.get(k) or tiling_of(k, self._target.processors) for k in before), *tilings]

        def measured() -> Answer:
            builds = self.built(kernels, [site] * len(kernels), cut)
            plain = iter(builds)
            parts = [None if k is None else next(plain) for _, k in candidate.parts]
            return fastest_product(candidate, layouts, parts, builds[len(before) :])

        units = [self._unit_of(k, t, site.origins) for k, t in zip(kernels[: len(before) + 1], cut)]
        used = [layouts[name] for name in buffers_of(candidate)]
        best = remembered(["product", *_told(units, used, tilings)], subject, measured)
        return None if best is None else tilings[best]

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        measured = [self._products.get(replace(k, shared=frozenset())) for k in kernels]
        usual = [m or tiling_of(k, self._target.processors) for k, m in zip(kernels, measured)]
        if tune:
            free = [m is None and not k.batched and can_choose(s) for k, s, m in zip(kernels, sites, measured)]
            trials = {n: self._trial(kernels[n], sites[n], usual[n]) for n, f in enumerate(free) if f}
            fresh = [t for t in trials.values() if not is_known(t.question)]
            flat = [(t.kernel, t.site, tiling) for t in fresh for tiling in t.tilings]
            # all at the same time
            self.built([k for k, _, _ in flat], [s for _, s, _ in flat], [t for _, _, t in flat])
            usual = [trials[n].tilings[self._best(trials[n])] if n in trials else t for n, t in enumerate(usual)]
        return self.built(kernels, sites, usual)

    def _trial(self, kernel: Kernel, site: Site, usual: Tiling) -> Trial:
        tilings = (usual, *alternatives(kernel, usual))
        told = _told([self._unit_of(kernel, usual, site.origins)], site.layouts, tilings)
        return Trial(kernel, site, tilings, ("tiling", *told))

    def _best(self, trial: Trial) -> int:
        """The number of the fastest tiling."""

        def measured() -> Answer:
            count = len(trial.tilings)
            return fastest(trial.site, self.built([trial.kernel] * count, [trial.site] * count, trial.tilings))

        return remembered(trial.question, ", ".join(trial.site.origins), measured) or 0

    def built(self, kernels: Sequence[Kernel], sites: Sequence[Site], tilings: Sequence[Tiling]) -> list[Built]:
        """Kernels cut into tiles of given sizes."""
        units = [self._unit_of(k, t, s.origins) for k, t, s in zip(kernels, tilings, sites)]
        jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, self.architecture, u.stages) for u in units]
        if any(k.batched for k in kernels):
            jobs.append(Job(FILL, fill_source(), fill_signature(), (0,), 1, self.architecture))
        binaries = compile_all(jobs)
        return [_loaded(k, u, b, binaries[-1]) for k, u, b in zip(kernels, units, binaries)]


def _told(units: Sequence[Unit], layouts: Sequence[Layout], tilings: Sequence[Tiling]) -> list[str]:
    """What is measured, in words: programs, memory and ways to cut."""
    return [*(u.source for u in units), *map(layout_text, layouts), *map(str, tilings)]


def _loaded(kernel: Kernel, unit: Unit, binary: Binary, fill: Binary) -> Built:
    """The kernel on its device; one of a batch with the kernel that fills its table."""
    device = kernel.device.index if kernel.device.index is not None else torch.cuda.current_device()
    if not unit.batched:
        launch = _launch(device, binary, unit.programs, unit.value_bytes, overlaps=unit.overlaps)
        launch = replace(launch, watches=unit.watches, limited=unit.limited)
        return Built(launch, host_kernel(unit), unit.source)
    batch = LaunchBatch(
        _launch(device, binary, constant(1), (0,) * len(PARAMETERS), overlaps=unit.overlaps),
        _launch(device, fill, constant(1), (0,) * (1 + WORDS), overlaps=False),
        WORDS,
        unit.value_bytes,
        lambda lengths, device: places(lengths, unit.points_each, device),
    )
    return Built(batch, host_kernel(unit), unit.source)


def _launch(device: int, binary: Binary, programs: Expr, value_bytes: tuple[int, ...], *, overlaps: bool) -> Launch:
    """Of a kernel that watches no indices."""
    return Launch(
        function=_function(device, binary),
        threads=binary.warps * LANES,
        shared_bytes=binary.shared_bytes,
        overlaps=overlaps,
        programs=programs,
        watches=False,
        limited=False,
        value_bytes=value_bytes,
    )


@functools.cache
def _function(device: int, binary: Binary) -> int:
    return _C.load_kernel(device, binary.content, binary.name, binary.shared_bytes)
