"""Which of several builds of a kernel is fastest: each runs on memory of the sizes that the plan has.

In:  the buffers of one call of each kernel, without symbolic sizes, and for each build the addresses of its kernels.
Out: for each kernel, the number of the fastest build.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time
from collections.abc import Iterable, Sequence

import torch

from stoker.codegen.backend import Site
from stoker.loop.layout import Layout
from stoker.shape.walk import evaluate

ROUNDS = 7
CLEARLY = 0.97
"""Another build than the first must take at most this share of its time."""


def can_choose(sites: Sequence[Site]) -> bool:
    return all(layout.reach.is_constant for site in sites for layout in site.layouts)


def fastest(sites: Sequence[Site], builds: Sequence[Sequence[int]]) -> list[int]:
    """The best build of each kernel."""
    return [_best(sites[number], [build[number] for build in builds]) for number in _shown(range(len(sites)))]


def _shown(numbers: range) -> Iterable[int]:
    """The numbers, with their progress on a terminal. rich is loaded only there: it draws a random number when it is."""
    if not sys.stderr.isatty():
        return numbers
    state = random.getstate()
    from rich.console import Console
    from rich.progress import track

    random.setstate(state)
    return track(numbers, "stoker: measuring kernels", console=Console(stderr=True), transient=True)


def _best(site: Site, addresses: Sequence[int]) -> int:
    """Rounds are interleaved, so that a change of the machine's speed meets all builds."""
    memory = [_filled(layout) for layout in site.layouts]
    pointers = (ctypes.c_void_p * len(memory))(*(m.data_ptr() for m in memory))
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
