"""Where buffers live, and for how long.

In:  the steps of a plan, without memory.
Out: the steps with allocations and frees, and for each device an arena: a block of memory in which temporaries have offsets
     decided here.

Outputs come from torch's allocator, because they outlive the call; so do results that a library call allocates itself. A
library operator that can write into given memory is asked to, so that its result may live in the arena. A result that is
written over a buffer that dies there (`stoker.schedule.overwrite`) is that buffer: they have one name here. A large temporary may lie in a
part of an output that is not written yet (`stoker.schedule.lodge`).

Requirement, held by tests/unit/schedule/test_memory.py: two buffers that are alive at the same step never overlap.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from stoker.loop.layout import Layout, Layouts, is_dense
from stoker.loop.node import Extern, Node, tensors_in
from stoker.loop.target import Targets
from stoker.loop.view import Stored
from stoker.schedule.kernel import Kernel
from stoker.schedule.lodge import Lodging, lodgings, moved_in
from stoker.schedule.overwrite import Lives, overwrite
from stoker.schedule.step import Allocate, Free, Library, Step, Steps, uses
from stoker.shape.expr import Expr, constant

aten = torch.ops.aten
_WRITING = {
    packet.default: packet.out for packet in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten._addmm_activation)
}
"""Operators that can write their result into given memory."""

_COPIES_STORAGE = frozenset(
    packet.default
    for packet in (aten.select_scatter, aten.slice_scatter, aten.diagonal_scatter, aten.as_strided_scatter)
)
"""Operators that copy all of the memory behind their first operand, whatever else lies there."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Temporaries of a device: offsets in bytes into one block."""

    device: torch.device
    offsets: tuple[tuple[str, Expr, Layout], ...]
    size_bytes: Expr


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer in the arena: alive from step `first` to step `last`."""

    buffer: str
    first: int
    last: int
    size_bytes: Expr


@dataclass(frozen=True, slots=True)
class Placed:
    """Steps with memory, the kernels they call, and which results were written over which buffers."""

    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    arenas: tuple[Arena, ...]
    over: tuple[tuple[str, str], ...]


def place(
    steps: Steps,
    kernels: Sequence[Kernel],
    layouts: Layouts,
    targets: Targets,
    outside: set[str],
    outputs: set[str],
    owned: frozenset[str] = frozenset(),
    homes: Mapping[str, str] | None = None,
) -> Placed:
    """Decide where each buffer lives. `owned` are inputs that nobody needs after the call: they are freed when they die. `homes` are
    inputs that results may be written over."""
    shared = _shared(steps)
    bases = {b for found in shared.values() for b in found}
    steps = [_given_memory(s, layouts, bases) for s in steps]
    changed = overwrite(steps, kernels, layouts, _lives(steps, shared), outside, outputs, homes)
    steps, kernels = changed.steps, changed.kernels
    outputs = outputs - {result for result, below in changed.over if below in outside}
    lives = _lives(steps, shared)
    own = {r for s in steps if isinstance(s, Library) for r in s.made}
    apart = outside | outputs | own | lives.sharing | _copied_whole(steps)
    alive = [Life(n, f, lives.last[n], _bytes(layouts[n], targets)) for n, f in lives.first.items() if n not in outside]
    arenas = _arenas(alive, layouts, targets, apart, outputs)
    inside = {name for arena in arenas for name, _, _ in arena.offsets}
    staying = (outside - owned) | outputs | inside
    guests = [name for name in lives.first if name not in apart and name not in inside]
    hosts = sorted((outputs & lives.first.keys()) - outside - own - lives.sharing)
    rooms = lodgings(steps, kernels, layouts, lives, guests, hosts, targets)
    made = _with_allocations(steps, lives, layouts, outside | own | inside, staying, rooms)
    made += [Allocate(n, layouts[n]) for n in sorted(outputs) if n not in lives.first and n not in outside]
    return Placed(tuple(made), kernels, tuple(arenas), changed.over)


def _lives(steps: Steps, shared: dict[str, set[str]]) -> Lives:
    """When each buffer is used. A buffer that another shares lives as long as that one."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        for name in uses(step):
            first.setdefault(name, position)
            for base in shared.get(name, {name}):
                last[base] = position
    return Lives(first, last, {b for bases in shared.values() for b in bases})


def _shared(steps: Steps) -> dict[str, set[str]]:
    """For results that may share memory with arguments of a library call: themselves and those arguments."""
    shared: dict[str, set[str]] = {}
    for step in steps:
        if isinstance(step, Library) and step.aliases:
            names = {b for n in step.given for b in (n, *shared.get(n, ()))}
            shared |= {r: names | {r} for r in step.made}
    return shared


def _copied_whole(steps: Steps) -> set[str]:
    """Buffers that need memory of their own, because a library call copies all that they lie in."""
    calls = [s for s in steps if isinstance(s, Library) and s.operator in _COPIES_STORAGE]
    return {tensor.buffer for call in calls for tensor in tensors_in(call.arguments[:1])}


def _given_memory(step: Step, layouts: Layouts, bases: set[str]) -> Step:
    """A library call that writes into memory of the plan, where the operator can, and its result is not one of the bases of others."""
    if not isinstance(step, Library) or step.operator not in _WRITING or step.several:
        return step
    (name,) = step.results
    if name is None or name in bases:
        return step
    layout = layouts[name]
    if not is_dense(layout.sizes, layout.strides) and not _has_rows(layout):
        return step
    target = Stored(name, layout.dtype, layout.device, layout.sizes, layout.strides)
    keywords = (*step.keywords, ("out", target))
    return replace(step, operator=_WRITING[step.operator], keywords=keywords, results=(), layouts=())


def _has_rows(layout: Layout) -> bool:
    """Is it a matrix of dense rows with gaps between them?"""
    if len(layout.sizes) != 2 or layout.strides[1].value != 1:
        return False
    columns, step = layout.sizes[1].value, layout.strides[0].value
    return columns is not None and step is not None and step > columns


def made_by_library(nodes: Sequence[Node]) -> set[str]:
    """Buffers that library calls allocate themselves."""
    calls = [n for n in nodes if isinstance(n, Extern) and n.operator not in _WRITING]
    return {name for call in calls for name in call.writes if name is not None}


def _bytes(layout: Layout, targets: Targets) -> Expr:
    """A buffer's size, rounded up."""
    size, step = layout.reach * layout.dtype.itemsize, targets[layout.device.type].alignment_bytes
    return (size + (step - 1)) // step * step


LARGE_RESULT, MUCH_LARGER = 1 << 26, 4
WORTH_FREEING = 1 << 16
"""An arena is held for the whole call. Beside a result of so many bytes, and so many times larger than it, which is made when nearly all of
its buffers are dead, the larger ones or all are freed one by one instead, if the peak is so many bytes lower."""


def _arenas(
    alive: Sequence[Life], layouts: Layouts, targets: Targets, apart: set[str], outputs: set[str]
) -> list[Arena]:
    """An arena for each device, of the buffers that are not `apart`."""
    inside = [life for life in alive if life.buffer not in apart]
    usual = _arranged_below(inside, layouts, targets, 1.0)
    largest = max((life.size_bytes.value or 0 for life in alive if life.buffer in outputs), default=0)
    limited = any(targets[arena.device.type].largest_in_arena is not None for arena in usual)
    together = sum(arena.size_bytes.value or 0 for arena in usual)
    if not limited or largest < max(LARGE_RESULT, MUCH_LARGER * together):
        return usual
    choices = [usual, *(_arranged_below(inside, layouts, targets, part) for part in (0.25, 0))]
    peaks = [_peak_bytes(alive, arenas, outputs) for arenas in choices]
    return next(arenas for arenas, peak in zip(choices, peaks) if peak < min(peaks) + WORTH_FREEING)


def _arranged_below(lives: Sequence[Life], layouts: Layouts, targets: Targets, part: float) -> list[Arena]:
    """Arenas of buffers that are not above a part of the target's limit."""
    inside = [life for life in lives if _belongs_in_arena(layouts[life.buffer], targets, part)]
    devices = dict.fromkeys(layouts[life.buffer].device for life in inside)
    return [_arranged([l for l in inside if layouts[l.buffer].device == d], layouts, d) for d in devices]


def _belongs_in_arena(layout: Layout, targets: Targets, part: float) -> bool:
    limit, size = targets[layout.device.type].largest_in_arena, (layout.reach * layout.dtype.itemsize).value
    return limit is None or size is None or size <= limit * part


def _peak_bytes(lives: Sequence[Life], arenas: Sequence[Arena], outputs: set[str]) -> int:
    """The most memory that a call needs, as far as sizes are known."""
    inside = {name for arena in arenas for name, _, _ in arena.offsets}
    changes: dict[int, int] = {}
    for life in lives:
        size = life.size_bytes.value
        if size is not None and life.buffer not in inside:
            changes[life.first] = changes.get(life.first, 0) + size
            if life.buffer not in outputs:
                changes[life.last + 1] = changes.get(life.last + 1, 0) - size
    held = itertools.accumulate(change for _, change in sorted(changes.items()))
    return max(held, default=0) + sum(arena.size_bytes.value or 0 for arena in arenas)


def _arranged(lives: list[Life], layouts: Layouts, device: torch.device) -> Arena:
    """Offsets: buffers of known size at the lowest free place, largest first; others after them, sharing by equal size."""
    placed: list[tuple[Life, int]] = []
    top = 0
    for life in sorted((l for l in lives if l.size_bytes.is_constant), key=lambda l: (-l.size_bytes.offset, l.first)):
        size, offset = life.size_bytes.offset, 0
        around = sorted(
            (o, o + p.size_bytes.offset) for p, o in placed if p.first <= life.last and life.first <= p.last
        )
        for start, end in around:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append((life, offset))
        top = max(top, offset + size)
    offsets: list[tuple[str, Expr, Layout]] = [(l.buffer, constant(o), layouts[l.buffer]) for l, o in placed]
    total = constant(top)
    blocks: list[tuple[Expr, Expr, int]] = []
    for life in sorted((l for l in lives if not l.size_bytes.is_constant), key=lambda l: l.first):
        found = next((b for b in blocks if b[0] is life.size_bytes and b[2] < life.first), None)
        if found is None:
            at, total = total, total + life.size_bytes
        else:
            at = found[1]
            blocks.remove(found)
        blocks.append((life.size_bytes, at, life.last))
        offsets.append((life.buffer, at, layouts[life.buffer]))
    return Arena(device, tuple(offsets), total)


def _with_allocations(
    steps: Steps, lives: Lives, layouts: Layouts, present: set[str], staying: set[str], rooms: Mapping[str, Lodging]
) -> list[Step]:
    """Allocate buffers that are not `present` before their first use; free those that are not `staying` after their last. Those with a room
    in another one are made in it."""
    first = dict(lives.first)
    for guest, room in rooms.items():
        first[room.host] = min(first[room.host], first[guest])
    born: dict[int, list[str]] = {}
    dying: dict[int, list[str]] = {}
    for name, position in sorted(first.items(), key=lambda found: found[0] in rooms):
        if name not in present:
            born.setdefault(position, []).append(name)
    for name, position in lives.last.items():
        if name not in staying:
            dying.setdefault(position, []).append(name)
    result: list[Step] = []
    for position, step in enumerate(steps):
        for name in born.get(position, ()):
            lodges = name in rooms
            result.append(moved_in(name, rooms[name], layouts) if lodges else Allocate(name, layouts[name]))
        result.append(step)
        result += [Free(name) for name in dying.get(position, ())]
    return result
