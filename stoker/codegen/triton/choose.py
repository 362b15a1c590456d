"""Which of several builds of a kernel is fastest on the device, on memory of the sizes that a plan has."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from stoker import _C, log
from stoker.codegen.backend import Built, Launch, Site
from stoker.loop.layout import Layout
from stoker.loop.memory import allocate, fetch
from stoker.loop.node import tensors_in
from stoker.runtime import choices
from stoker.runtime.device import elapsed, index_flags, surroundings
from stoker.schedule.epilogue import Candidate
from stoker.schedule.step import Run
from stoker.shape.walk import evaluate

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


@dataclass(frozen=True, slots=True)
class Answer:
    """Which of several ways is best, by its number; None where what they would replace is better. And what was measured, in words."""

    best: int | None
    words: str


def is_known(question: Sequence[object]) -> bool:
    return choices.known([*surroundings(), *question]) is not None


def remembered(question: Sequence[object], subject: str, measure: Callable[[], Answer]) -> int | None:
    """What was measured on a device like this one, by whichever process; measured if nobody has. An event tells what was found."""
    asked = [*surroundings(), *question]
    answer = choices.known(asked)
    found = Answer(**answer) if answer is not None else measure()
    if answer is None:
        choices.keep(asked, {"best": found.best, "words": found.words})
    if found.words:
        log.record(log.Event("tuned", subject, "", f"{found.words}{', as known' if answer is not None else ''}"))
    return found.best


def fastest(site: Site, builds: Sequence[Built]) -> Answer:
    """Rounds are interleaved, so that a change of the device's speed meets all builds."""
    memory = [torch.zeros(max(evaluate(l.reach, {}), 1), dtype=l.dtype, device=l.device) for l in site.layouts]
    times = [[float("inf")] for _ in builds]
    for _ in range(ROUNDS):
        for built, found in zip(builds, times):
            found.append(milliseconds(built, memory))
    best = min(range(len(builds)), key=lambda n: min(times[n]))
    if min(times[best]) >= CLEARLY * min(times[0]):
        return Answer(0, "")
    return Answer(best, f"{min(times[0]) * 1e3:.1f} us as usual, {min(times[best]) * 1e3:.1f} us in other tiles")


def milliseconds(built: Built, memory: Sequence[torch.Tensor]) -> float:
    """The time of one launch."""
    launch = launcher(built, memory)

    def several() -> None:
        for _ in range(LAUNCHES):
            launch()

    return elapsed(several) / LAUNCHES


def launcher(built: Built, memory: Sequence[torch.Tensor]) -> Callable[[], None]:
    """A function that starts a kernel on memory."""
    launch = built.launchable
    assert isinstance(launch, Launch)
    device = next(m.device.index or 0 for m in memory if m.device.type != "cpu")
    words = (
        [0 if size else m.data_ptr() for m, size in zip(memory, launch.value_bytes)]
        + ([index_flags().data_ptr()] if launch.watches else [])
        + [0, 0]
    )
    programs = evaluate(launch.programs, {})
    start = functools.partial(_C.launch_kernel, device, launch.function, launch.threads, launch.shared_bytes)
    packed = struct.pack(f"<{len(words)}Q", *words)
    return lambda: start(programs, packed)


def fastest_product(
    candidate: Candidate, layouts: Mapping[str, Layout], parts: Sequence[Built | None], builds: Sequence[Built]
) -> Answer:
    """Which build of a kernel with a product is faster than the steps it would replace (built, where they are kernels); None if none is.

    Each is recorded as a graph and replayed: what the host does for a call is in no measurement.
    """
    names = buffers_of(candidate)
    if sum(_bytes(layouts[name]) for name in names) > LARGEST_BYTES:
        return Answer(None, "")
    memory = {name: _filled(layouts[name]) for name in names}

    def as_before() -> None:
        seen = dict(memory)
        for (step, _), built in zip(candidate.parts, parts):
            if isinstance(step, Run):
                assert built is not None
                launcher(built, [seen[b] for b in step.buffers])()
            else:
                result = step.results[0]
                assert result is not None
                seen[result] = step.operator(*fetch(step.arguments, seen, {}))

    ways = [as_before, *(launcher(built, [memory[b] for b in candidate.run.buffers]) for built in builds)]
    graphs = [_recorded(way) for way in ways]
    times = [min(elapsed(graph.replay) for _ in range(ROUNDS)) for graph in graphs]
    best = min(range(1, len(times)), key=times.__getitem__)
    before = "by the library" if None in parts else "as two kernels"
    words = f"{times[0] * 1e3 / LAUNCHES:.1f} us {before}, {times[best] * 1e3 / LAUNCHES:.1f} us as one kernel"
    return Answer(best - 1 if times[best] < CLEARLY * times[0] else None, words)


def buffers_of(candidate: Candidate) -> list[str]:
    """The memory that a candidate and the steps before it are measured on."""
    names = [*candidate.run.buffers]
    for step, _ in candidate.parts:
        names += step.buffers if isinstance(step, Run) else [t.buffer for t in tensors_in(step.arguments)]
    return list(dict.fromkeys(names))


def _recorded(way: Callable[[], object]) -> torch.cuda.CUDAGraph:
    way()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            way()
    graph.replay()
    return graph


def _filled(layout: Layout) -> torch.Tensor:
    """Memory of a buffer, with numbers in it: products of zeros are faster than others. The program's own numbers are not drawn."""
    made = allocate(layout, {})
    if not layout.dtype.is_floating_point:
        return made.zero_()
    return made.normal_(generator=torch.Generator(made.device).manual_seed(0))
