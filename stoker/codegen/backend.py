"""What a code generator is: kernels of a plan in, launchables out.

Generators are equals and do not know each other. `stoker.codegen.generators` says which serves which device; the recipe for adding
one is in CONTRIBUTING.md, and tests/unit/codegen/plain_generator.py is one on a page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.schedule.epilogue import Candidate
from stoker.schedule.kernel import Kernel
from stoker.shape.expr import Expr

HostKernel = Callable[[Sequence[torch.Tensor], Sequence[int]], int]
"""A kernel as the Python host program calls it: on buffers, each from its first element on, and sizes; one of a batch on the buffers of all
rows, one after the other, and the rows' lengths. It gives back the bits of the families of indices that were out of range."""


@dataclass(frozen=True, slots=True)
class Native:
    """A function of C: `int (void* const* buffers, const int64_t* sizes)`."""

    address: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of a CUDA device."""

    function: int
    """The driver's handle."""
    threads: int
    shared_bytes: int
    overlaps: bool
    """May it be placed before the kernel ahead of it has ended? It waits for that one by itself."""
    programs: Expr
    """The size of the grid, of the kernel's sizes n0, n1, ..."""
    watches: bool
    """Does it take a pointer to flags, for indices out of range?"""
    limited: bool
    """Does it compute places in 32 bits, though the sizes of a call may be too large for them?"""
    value_bytes: tuple[int, ...]
    """For each argument: the bytes of its value, or 0 where the kernel takes its address."""


@dataclass(frozen=True, slots=True)
class LaunchBatch:
    """A kernel of a CUDA device that is launched on many rows of buffers at once, which a table in its memory has the addresses of.

    It takes the table, and what `places` makes of the rows' lengths; one entry of the first of these is a program."""

    launch: Launch
    fill: Launch
    """The kernel that writes words to the table: it takes the table, `fill_words` words, and a place in the table."""
    fill_words: int
    value_bytes: tuple[int, ...]
    """For each argument of a row: the bytes of its value, or 0 where the table has its address."""
    places: Callable[[Sequence[int], torch.device], Sequence[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel that can run: by the executor, and by the host program."""

    launchable: Native | Launch | LaunchBatch | None
    """None where only Python can call it."""
    call: HostKernel
    source: str


@dataclass(frozen=True, slots=True)
class Site:
    """One call of a kernel: its buffers, and the operators it stands for."""

    layouts: tuple[Layout, ...]
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Building:
    """Kernels that are being built."""

    wait: Callable[[], list[Built]]
    built_by: Callable[[float], bool] = lambda moment: True
    """Does it take no longer than until this moment of `time.perf_counter`? Waits until then at most."""


class Backend(Protocol):
    """A code generator for one kind of device."""

    @property
    def target(self) -> Target: ...

    def start(self) -> None:
        """Kernels will be asked for: get ready in the background."""

    def choose_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> bool:
        """Is a kernel that computes the matrix product it reads faster than the library and the kernel after it? Asked when tuning."""

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        """The kernels, built in parallel or found in the cache. To tune is to measure alternatives, on memory as at the sites."""


@runtime_checkable
class BuildsAhead(Protocol):
    """A code generator that builds while its caller goes on."""

    def begin(self, kernels: Sequence[Kernel], sites: Sequence[Site]) -> Building:
        """Begin to build the kernels, without tuning."""


def begin(backend: Backend, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> Building:
    """Kernels that are being built, if the generator can and need not measure; otherwise they are built when they are waited for."""
    if isinstance(backend, BuildsAhead) and not tune:
        return backend.begin(kernels, sites)
    return Building(functools.partial(backend.build, kernels, sites, tune=tune))
