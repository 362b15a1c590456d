"""Which of several builds of a kernel is fastest on the device, on memory of the sizes that a plan has."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stoker import _C, log
from stoker.codegen.backend import Built, Launch, Site
from stoker.loop.layout import Layout
from stoker.runtime.device import index_flags
from stoker.shape.expr import evaluate

ROUNDS, LAUNCHES = 5, 10
CLEARLY = 0.97
"""Another build than the first must take at most this share of its time."""
LARGEST_BYTES = 1 << 30


def can_choose(site: Site) -> bool:
    """Are its sizes known, and is there memory to measure on?"""
    if not all(layout.reach.is_constant for layout in site.layouts):
        return False
    return sum(_bytes(layout) for layout in site.layouts) <= LARGEST_BYTES


def _bytes(layout: Layout) -> int:
    return evaluate(layout.reach, {}) * layout.dtype.itemsize


def fastest(site: Site, builds: Sequence[Built]) -> Built:
    """Rounds are interleaved, so that a change of the device's speed meets all builds."""
    memory = [torch.zeros(max(evaluate(l.reach, {}), 1), dtype=l.dtype, device=l.device) for l in site.layouts]
    times = [[float("inf")] for _ in builds]
    for _ in range(ROUNDS):
        for built, found in zip(builds, times):
            found.append(milliseconds(built, memory))
    best = min(range(len(builds)), key=lambda n: min(times[n]))
    if min(times[best]) >= CLEARLY * min(times[0]):
        return builds[0]
    words = f"{min(times[0]) * 1e3:.1f} us as usual, {min(times[best]) * 1e3:.1f} us in other tiles"
    log.record(log.Event("tuned", ", ".join(site.origins), "", words, builds[best].source))
    return builds[best]


def milliseconds(built: Built, memory: Sequence[torch.Tensor]) -> float:
    """The time of one launch."""
    launch = built.launchable
    assert isinstance(launch, Launch)
    device = memory[0].device.index or 0
    words = [m.data_ptr() for m in memory] + ([index_flags().data_ptr()] if launch.watches else []) + [0, 0]
    programs = evaluate(launch.programs, {})
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(LAUNCHES):
        _C.launch_kernel(device, launch.function, launch.threads, launch.shared_bytes, programs, tuple(words))
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / LAUNCHES
