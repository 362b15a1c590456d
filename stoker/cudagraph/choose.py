"""Which way a graph runs fastest: as it is, or recorded, with inputs copied or followed.

Every way is held against the plan itself before it is timed: a way that gives other results is none.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker.cudagraph.contents import Contents
from stoker.cudagraph.driver import Driver
from stoker.cudagraph.recording import PlanRecording, World, placed

PLAIN, COPIED, FOLLOWED = "as it is", "recorded, inputs copied", "recorded, inputs followed"
ROUNDS = 5
ROUND_SECONDS = 0.01
MOST_CALLS = 20
WORTH = 0.98
"""A recording must take at most this part of the plan's time."""
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-9}
"""Of results that depend on the order of additions, which atomics leave open, as a part of the largest value."""
USUAL_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured, and what came of it."""

    way: str
    microseconds: Mapping[str, float]
    followed: tuple[int, ...]
    kernels: int
    refused: Mapping[int, str]
    moving: int
    copied: Mapping[str, int]
    """Bytes that a replay copies, by way."""

    def __str__(self) -> str:
        times = ", ".join(f"{way} {value:.0f} us" for way, value in self.microseconds.items())
        bytes_ = f"; {self.copied.get(self.way, 0):,} bytes copied a call" if self.moving and self.way != PLAIN else ""
        return f"{self.way} ({times}){bytes_}"


def choose(world: World, recording: PlanRecording, inputs: Sequence[Any], contents: Contents) -> Choice:
    """Try the ways, set the recording to the best. Inputs that the plan writes are left with any content."""
    refused = dict(recording.refused)
    others = {i: torch.empty_like(p).copy_(p) for i, p in recording.places.items()}
    given = [list(inputs), placed(inputs, others)]
    ways: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {PLAIN: (world.run, ())}
    trial = _Trial(world, recording, inputs, contents)
    if trial.agrees(()):
        ways[COPIED] = (recording.replay, ())
    followed = recording.patchable
    if followed:
        for place in recording.places.values():
            place.zero_()  # what is read from here would be told by its value; 0 is an index in range
        if trial.agrees(followed):
            ways[FOLLOWED] = (recording.replay, followed)
        else:
            refused |= dict.fromkeys(followed, "a replay with it followed gave another result")
    del trial
    contents.put_back()
    whole = [n for n in world.written if not (inputs[n].is_floating_point() or inputs[n].is_complex())]
    # Whole numbers that the plan counts up may be places in memory: each call that is measured begins with the first ones.
    starts = [(given_set, Contents(given_set, whole)) for given_set in given]
    with world.driver.random_state_kept():
        times = _measured(world.driver, recording, ways, starts)
    best = min(times, key=times.__getitem__)
    if times[best] > WORTH * times[PLAIN]:
        best = PLAIN
    recording.replay.patch(ways[best][1])
    micro = {way: seconds * 1e6 for way, seconds in times.items()}
    copied = {
        way: sum(place.numel() for number, place in recording.places.items() if number not in followed)
        for way, (_, followed) in ways.items()
        if way != PLAIN
    }
    return Choice(best, micro, ways[best][1], recording.kernels, refused, len(recording.places), copied)


class _Trial:
    """A call whose results are known."""

    def __init__(self, world: World, recording: PlanRecording, inputs: Sequence[Any], contents: Contents) -> None:
        self.driver, self.recording, self.inputs, self.contents = world.driver, recording, inputs, contents
        contents.put_back()
        with self.driver.random_state_kept():
            found = world.run(*inputs)
        written = [inputs[number] for number in world.written]
        self.expected = [r.clone() if any(r is w for w in written) else r for r in found]

    def agrees(self, followed: tuple[int, ...]) -> bool:
        """Does a replay with these inputs followed give them?"""
        self.recording.replay.patch(followed)
        self.contents.put_back()
        with self.driver.random_state_kept():
            found = self.recording.replay(*self.inputs)
        return found is not NotImplemented and all(same(a, b) for a, b in zip(found, self.expected))


def same(found: Any, expected: Any) -> bool:
    """Are two results of one plan equal, but for the order of additions?"""
    if not isinstance(expected, torch.Tensor):
        return bool(found == expected)
    if not expected.numel() or torch.equal(found, expected):
        return True
    if not (expected.is_floating_point() or expected.is_complex()):
        return False
    unequal = ~((found == expected) | (found.isnan() & expected.isnan()))
    if not unequal.any():
        return True
    apart = (found[unequal] - expected[unequal]).abs().amax().to(torch.float64)
    finite = expected[expected.isfinite()]
    scale = finite.abs().amax().to(torch.float64) if finite.numel() else 0.0
    return bool(apart <= TOLERANCE.get(expected.dtype, USUAL_TOLERANCE) * scale)


def _measured(
    driver: Driver,
    recording: PlanRecording,
    ways: Mapping[str, tuple[Callable[..., Any], tuple[int, ...]]],
    starts: Sequence[tuple[Sequence[Any], Contents]],
) -> dict[str, float]:
    """Seconds of a call, by way: the ways take turns, and the median of the rounds counts."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    calls = 2
    for _ in range(ROUNDS + 1):  # the first round tells how many calls make one
        for way, (run, followed) in ways.items():
            recording.replay.patch(followed)
            driver.synchronize()
            start = time.perf_counter()
            for number in range(calls):
                inputs, places = starts[number % len(starts)]
                places.put_back()
                run(*inputs)
            driver.synchronize()
            times[way].append((time.perf_counter() - start) / calls)
        calls = max(2, min(MOST_CALLS, int(ROUND_SECONDS / max(times[PLAIN][-1], 1e-6))))
    return {way: statistics.median(rounds[1:]) for way, rounds in times.items()}
