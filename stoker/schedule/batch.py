"""Kernels that differ in their sizes alone are launched together: an optimizer's step for each of many parameters, say.

In:  groups; the steps of a plan in their order, without memory; the same with memory.
Out: `partners`, the groups that will have company and need not be joined with strangers; `gather`, the steps with like kernels side by side;
     `fold`, these as one `Batch`, whose rows run at the same time.

A kernel of a batch has one loop, whose length each row tells: n0. Rows may run in any order and at once, so none may read or write what
another one writes, nor lie in memory of the arena that another one writes.

Requirements, held by tests/unit/schedule/test_batch.py and tests/stages/test_batches.py:
  1. A step runs after those that write what it reads or writes, before those that write what it reads, and before a result is made whose
     home it reads.
  2. A row waits for the others only where what it reads was there before the call, or is small: what was just made may be in a cache,
     and would be kept alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stoker.loop.index import Dimension, ranges_of
from stoker.loop.instruction import Indirect, Store, index_expressions
from stoker.loop.layout import Layouts
from stoker.loop.target import Targets
from stoker.schedule.kernel import Call, Kernel
from stoker.schedule.memory import Arena
from stoker.schedule.precede import Precedence
from stoker.schedule.step import Allocate, Batch, Free, Library, Row, Run, Step, Steps
from stoker.shape.expr import symbol
from stoker.shape.prove import bounds
from stoker.shape.walk import evaluate

LARGEST = 1 << 30
"""Places in a row's buffers: they are computed in 32 bits."""
SMALL_BYTES = 1 << 20
"""What a row reads of the call's own results may wait with it, if it has no more than this."""
LOOP = symbol("o0")


def template(kernel: Kernel, targets: Targets) -> Kernel | None:
    """The kernel of a batch that a kernel can be a row of: its loop has any length."""
    lines = [i for phase in kernel.phases for _, i in phase.lines]
    more = len(kernel.outer) > 1 or kernel.inner or kernel.sizes or kernel.product
    if more or not targets[kernel.device.type].batches:
        return None
    if any(isinstance(i, Indirect) or (isinstance(i, Store) and i.combine) for i in lines):
        return None
    ranges = ranges_of(kernel.outer)
    far = any(bounds(e, ranges).high > LARGEST for i in lines for e in index_expressions(i))
    if far or not 0 < points(kernel) <= LARGEST:
        return None
    return replace(kernel, outer=(Dimension(LOOP, symbol("n0")),), sizes=1, shared=frozenset(), batched=True)


def points(kernel: Kernel) -> int:
    return kernel.outer[0].size.offset if kernel.outer else 1


def partners(calls: Mapping[int, Call], order: Precedence, targets: Targets) -> frozenset[int]:
    """The groups whose kernels have others like them, none of which must run before or after them."""
    alike: dict[Kernel, list[int]] = {}
    for number, call in calls.items():
        made = template(call.kernel, targets)
        if made is not None:
            alike.setdefault(made, []).append(number)
    found: set[int] = set()
    for numbers in alike.values():
        together: list[int] = []
        for number in numbers:
            if not order.related(number, together):
                together.append(number)
        found |= set(together) if len(together) > 1 else set()
    return frozenset(found)


@dataclass(slots=True)
class _Waiting:
    """Runs of like kernels that wait for more: their places among the steps."""

    runs: list[int] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


def gather(
    steps: Steps,
    kernels: Sequence[Kernel],
    layouts: Layouts,
    targets: Targets,
    staying: set[str],
    homes: Mapping[str, str],
) -> list[Step]:
    """The steps, with runs that may be rows of one batch side by side: each waits until somebody needs what one of them makes.

    `staying` are buffers that were there before the call and are when it ends, however long somebody waits that reads them."""
    templates = [template(kernel, targets) for kernel in kernels]
    if not any(templates):
        return list(steps)
    waiting: dict[Kernel, _Waiting] = {}
    ready: dict[int, list[int]] = {}
    """For each step, those that run together before it."""
    for place, step in enumerate(steps):
        reads, writes = _accesses(step, kernels)
        overwritten = {homes[name] for name in writes if name in homes}
        for made in [t for t, w in waiting.items() if w.writes & (reads | writes) or w.reads & (writes | overwritten)]:
            ready.setdefault(place, []).extend(_company(waiting.pop(made)))
        mold = templates[step.kernel] if isinstance(step, Run) else None
        if mold is not None and _may_wait(reads - staying, layouts):
            mine = waiting.setdefault(mold, _Waiting())
            mine.runs.append(place)
            mine.reads |= reads
            mine.writes |= writes
    ready.setdefault(len(steps), []).extend(place for left in waiting.values() for place in _company(left))
    moved = {place for places in ready.values() for place in places}
    done: list[Step] = []
    for place in range(len(steps) + 1):
        done += [steps[other] for other in ready.get(place, ())]
        done += steps[place : place + 1] if place not in moved else ()
    return done


def _company(waiting: _Waiting) -> list[int]:
    """Those that have waited together; one alone stays where it was."""
    return waiting.runs if len(waiting.runs) > 1 else []


def _accesses(step: Step, kernels: Sequence[Kernel]) -> tuple[set[str], set[str]]:
    """What a step reads and writes. A library call may write what it is given."""
    match step:
        case Run():
            written = {step.buffers[n] for n in kernels[step.kernel].written}
            return set(step.buffers) - written, written
        case Library():
            return set(step.given), {*step.given, *step.made}
    return set(), set()


def _may_wait(made: Iterable[str], layouts: Layouts) -> bool:
    sizes = [(layouts[name].reach * layouts[name].dtype.itemsize).value for name in made]
    return all(size is not None for size in sizes) and sum(size or 0 for size in sizes) <= SMALL_BYTES


def fold(
    steps: Steps, kernels: list[Kernel], targets: Targets, arenas: Sequence[Arena]
) -> tuple[list[Step], dict[int, int]]:
    """Runs of like kernels that stand side by side, as batches. Their kernels are added to the list; for each, one that it is made of."""
    templates = [template(kernel, targets) for kernel in kernels]
    spans = _spans(arenas)
    origins: dict[int, int] = {}
    done: list[Step] = []
    place = 0
    while place < len(steps):
        together = _together(steps, place, templates)
        runs = [s for s in together if isinstance(s, Run)]
        if len(runs) < 2 or not _are_apart(runs, kernels, spans):
            done.append(steps[place])
            place += 1
            continue
        made = templates[runs[0].kernel]
        assert made is not None
        if made not in kernels:
            kernels.append(made)
        origins.setdefault(kernels.index(made), runs[0].kernel)
        rows = tuple(Row(run.buffers, points(kernels[run.kernel])) for run in runs)
        done += [s for s in together if isinstance(s, Allocate)]
        done.append(Batch(kernels.index(made), rows))
        done += [s for s in together if isinstance(s, Free)]
        place += len(together)
    return done, origins


def _together(steps: Steps, start: int, templates: Sequence[Kernel | None]) -> list[Step]:
    """Runs of like kernels from a place on, with allocations and frees between them; the last one is a run."""
    first = steps[start]
    if not isinstance(first, Run) or templates[first.kernel] is None:
        return []
    found, last = [first], 1
    for step in steps[start + 1 :]:
        if isinstance(step, Library) or (isinstance(step, Run) and templates[step.kernel] != templates[first.kernel]):
            break
        found.append(step)  # type: ignore[arg-type]  # an allocation, a free, or a run
        last = len(found) if isinstance(step, Run) else last
    return list(found[:last])


Span = tuple[int, int, int]
"""An arena by its number, and bytes in it."""


def _spans(arenas: Sequence[Arena]) -> dict[str, Span | None]:
    """Where buffers in arenas lie; None where only a call tells."""
    found: dict[str, Span | None] = {}
    for number, arena in enumerate(arenas):
        for name, offset, layout in arena.offsets:
            size = layout.reach * layout.dtype.itemsize
            known = offset.is_constant and size.is_constant
            found[name] = (number, evaluate(offset, {}), evaluate(offset + size, {})) if known else None
    return found


def _are_apart(runs: Sequence[Run], kernels: Sequence[Kernel], spans: Mapping[str, Span | None]) -> bool:
    """Does no run write what another one reads or writes?"""
    users: dict[str, set[int]] = {}
    written: dict[str, int] = {}
    for number, run in enumerate(runs):
        for name in run.buffers:
            users.setdefault(name, set()).add(number)
        written |= {run.buffers[n]: number for n in kernels[run.kernel].written}
    if any(users[name] != {number} for name, number in written.items()):
        return False
    inside = [name for name in users if name in spans]
    changed = [name for name in inside if name in written]
    return not any(_meet(spans[a], spans[b]) for a in changed for b in inside if a != b)


def _meet(a: Span | None, b: Span | None) -> bool:
    return a is None or b is None or (a[0] == b[0] and a[1] < b[2] and b[1] < a[2])
