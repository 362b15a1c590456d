"""The order in which groups run.

Any order that respects dependencies is right. A few are tried, and the one that needs the least memory at its peak is kept;
the program's own order wins unless another is clearly better, because it is near what eager does.

    program   a group runs at the place of its last member, once all it depends on has run
    early     a group runs at the place of its first member, once all it depends on has run
    late      a group runs just before the first that needs it
    greedy    among the groups that are ready, the one that frees most, less what it makes

Requirements, held by tests/unit/schedule/test_order.py:
  1. A group runs after those it depends on; random numbers are drawn in the order of the program.
  2. The estimated peak of the order kept is at most that of the program's own.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from stoker.loop.node import Extern, reads, tensors_in
from stoker.schedule.draft import Draft
from stoker.schedule.score import Groups, estimate_bytes

CLEARLY = 0.98
"""Another order than the program's must have a peak of at most this share of its peak."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Groups in the order they run. Peaks are estimates in bytes, of what the groups make and someone still needs: the most in
    the arena at once, which is there for the whole call, and the most outside of it at once."""

    items: tuple[Draft | Extern, ...]
    name: str
    peak_bytes: int
    program_peak_bytes: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What flows between groups."""

    before: dict[int, set[int]]
    """For each group, those it waits for; groups stand in the order of their last members."""
    after: dict[int, set[int]]
    made: dict[int, tuple[str, ...]]
    """For each group, the buffers it makes that someone else needs."""
    read: dict[int, tuple[str, ...]]
    """For each group, the buffers of other groups that it reads and that may die."""
    readers: dict[str, set[int]]
    bytes_of: dict[str, int]
    apart: set[str]
    """Buffers outside the arena."""
    owned: frozenset[str]
    """Inputs that die with their last reader."""


def order(
    groups: Groups, apart: set[str], owned: frozenset[str] = frozenset(), homes: Mapping[str, str] | None = None
) -> Ordered:
    """The best of a few orders; `apart` are the buffers that will not be in the arena, `owned` the inputs that may die. A result
    whose home is an input is made after that input was read, where that can be."""
    flow = flow_of(groups, apart, owned, homes)
    own = _by_key(flow, flow.before)
    tried = {
        "program": own,
        "early": _by_key(flow, sorted(flow.before, key=lambda n: _positions(groups, n)[0])),
        "late": _by_key(flow, [n for n in flow.before if not flow.after[n]]),
        "greedy": _greedy(flow),
    }
    peaks = {name: peak_bytes(flow, sequence) for name, sequence in tried.items()}
    best = min(peaks, key=peaks.__getitem__)
    if peaks[best] > CLEARLY * peaks["program"]:
        best = "program"
    return Ordered(tuple(groups.drafts[n] for n in tried[best]), best, peaks[best], peaks["program"])


def flow_of(
    groups: Groups, apart: set[str], owned: frozenset[str] = frozenset(), homes: Mapping[str, str] | None = None
) -> Flow:
    """Which group waits for which, and what memory that means."""
    program = groups.program
    numbers = sorted(groups.drafts, key=lambda n: _positions(groups, n)[-1])
    before: dict[int, set[int]] = {n: set() for n in numbers}
    read: dict[int, dict[str, None]] = {n: {} for n in numbers}
    writers: dict[str, list[int]] = {}
    drawn: int | None = None
    for position, node in enumerate(program.nodes):
        group = groups.group_of[position]
        for name in reads(node):
            found = writers.get(name, ())
            before[group].update(found)
            if found or name in owned:
                read[group][name] = None
        if isinstance(node, Extern) and node.ordered:
            before[group].update(() if drawn is None else (drawn,))
            drawn = group
        for written in node.writes:
            if written is not None:
                writers.setdefault(written, []).append(group)
    if homes:
        before = _read_first(groups, before, writers, homes)
    return _flow(groups, before, read, writers, apart, owned)


def _read_first(
    groups: Groups, before: dict[int, set[int]], writers: dict[str, list[int]], homes: Mapping[str, str]
) -> dict[int, set[int]]:
    """The same, and who makes a result waits for those that read its home; as it was, if they would wait for each other."""
    readers: dict[str, set[int]] = {home: set() for home in homes.values()}
    for position, node in enumerate(groups.program.nodes):
        for name in reads(node):
            if name in readers:
                readers[name].add(groups.group_of[position])

    def waiting(chosen: Mapping[str, str]) -> dict[int, set[int]]:
        more = {number: set(earlier) for number, earlier in before.items()}
        for result, home in chosen.items():
            for maker in writers.get(result, ()):
                more[maker] |= readers[home] - {maker}
        return more

    if _has_order(all_of_them := waiting(homes)):
        return all_of_them
    ancestors: dict[int, int] = {}
    for number, earlier in before.items():  # as bits; groups stand after those they wait for
        ancestors[number] = functools.reduce(lambda bits, n: bits | ancestors.get(n, 0) | 1 << n, earlier, 0)
    apart = {
        result: home
        for result, home in homes.items()
        if not any(ancestors[r] >> maker & 1 for maker in writers.get(result, ()) for r in readers[home] - {maker})
    }
    some = waiting(apart)
    return some if _has_order(some) else before


def _has_order(before: Mapping[int, set[int]]) -> bool:
    """Can all run, each after those it waits for?"""
    try:
        TopologicalSorter({number: earlier - {number} for number, earlier in before.items()}).prepare()
    except CycleError:
        return False
    return True


def _flow(
    groups: Groups,
    before: dict[int, set[int]],
    read: dict[int, dict[str, None]],
    writers: dict[str, list[int]],
    apart: set[str],
    owned: frozenset[str],
) -> Flow:
    """The other direction, and sizes. A buffer that one group writes and reads alone is not counted."""
    after: dict[int, set[int]] = {n: set() for n in before}
    for number, earlier in before.items():
        earlier.discard(number)
        for other in earlier:
            after[other].add(number)
    staying = {t.buffer for t in tensors_in(groups.program.outputs)}
    readers: dict[str, set[int]] = {}
    for number, names in read.items():
        for name in names:
            readers.setdefault(name, set()).add(number)
    made: dict[int, list[str]] = {n: [] for n in before}
    bytes_of = {name: estimate_bytes(groups.program, name) for name in owned}
    for name, (maker, *_) in writers.items():
        if name in staying or readers.get(name, set()) - {maker}:
            bytes_of[name] = estimate_bytes(groups.program, name)
            made[maker].append(name)
    dying = {n: tuple(name for name in names if name in bytes_of and name not in staying) for n, names in read.items()}
    return Flow(before, after, {n: tuple(m) for n, m in made.items()}, dying, readers, bytes_of, apart | owned, owned)


def peak_bytes(flow: Flow, sequence: Sequence[int]) -> int:
    """The most in the arena at once, and the most outside of it. What a group reads lives while it runs."""
    left = {name: len(readers) for name, readers in flow.readers.items()}
    present = [0, sum(flow.bytes_of[name] for name in flow.owned)]
    highest = list(present)
    for number in sequence:
        for name in flow.made[number]:
            present[name in flow.apart] += flow.bytes_of[name]
        highest = [max(a, b) for a, b in zip(highest, present)]
        for name in flow.read[number]:
            left[name] -= 1
            if not left[name]:
                present[name in flow.apart] -= flow.bytes_of[name]
    return sum(highest)


def _by_key(flow: Flow, numbers: Iterable[int]) -> list[int]:
    """Groups as they come, each after those it depends on."""
    rank = {n: place for place, n in enumerate(flow.before)}
    done: dict[int, None] = {}
    for number in numbers:
        stack = [number]
        while stack:
            top = stack[-1]
            waiting = [n for n in flow.before[top] if n not in done] if top not in done else []
            if waiting:
                stack.extend(sorted(waiting, key=rank.__getitem__, reverse=True))
                continue
            done[top] = None
            stack.pop()
    return list(done)


def _greedy(flow: Flow) -> list[int]:
    """Run what frees most, less what it makes; the program's order decides among equals."""
    rank = {n: place for place, n in enumerate(flow.before)}
    waiting = {n: len(earlier) for n, earlier in flow.before.items()}
    readers = {name: set(found) for name, found in flow.readers.items()}
    heap: list[tuple[int, int, int]] = []
    """The groups that may run, best first. An entry whose gain is out of date is passed over."""
    gains: dict[int, int] = {}

    def offer(number: int) -> None:
        freed = sum(flow.bytes_of[name] for name in flow.read[number] if len(readers[name]) == 1)
        gains[number] = freed - sum(flow.bytes_of[name] for name in flow.made[number])
        heapq.heappush(heap, (-gains[number], rank[number], number))

    for number, count in waiting.items():
        if not count:
            offer(number)
    done: list[int] = []
    while heap:
        negative, _, number = heapq.heappop(heap)
        if gains.get(number) != -negative:
            continue
        del gains[number]
        done.append(number)
        for name in flow.read[number]:
            readers[name].discard(number)
            if len(readers[name]) == 1:
                (last,) = readers[name]
                if last in gains:
                    offer(last)
        for follower in flow.after[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                offer(follower)
    return done


def _positions(groups: Groups, number: int) -> tuple[int, int]:
    """Where a group's first and last members stand in the program."""
    item = groups.drafts[number]
    return (min(item.positions), max(item.positions)) if isinstance(item, Draft) else (number, number)
