"""Large temporaries inside results of which a part is not written yet, so that a plan needs less memory than both.

In:  the steps of a plan, when buffers live, which of them would get memory of their own (guests), and results that the plan allocates (hosts).
Out: for each guest that finds room, its host and the element it begins at.

A product with rows of an odd length is made in aligned memory and copied to its own, some rows after the other (`stoker.lower.matmul`): what
is aligned lies where rows will be that are made later.

Requirement, held by tests/unit/schedule/test_lodge.py: while a guest lives, no step has touched, or touches, the part of the host that it
lies in, but for the guest's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stoker.loop.index import ranges_of
from stoker.loop.instruction import Load, Store
from stoker.loop.layout import Layout, Layouts, is_dense
from stoker.loop.target import Targets
from stoker.loop.view import Stored
from stoker.schedule.kernel import Kernel
from stoker.schedule.overwrite import Lives
from stoker.schedule.step import Library, Run, Step, Steps, uses
from stoker.shape.expr import constant
from stoker.shape.prove import bounds


@dataclass(frozen=True, slots=True)
class Lodging:
    host: str
    offset: int
    """In elements."""


def lodgings(
    steps: Steps,
    kernels: Sequence[Kernel],
    layouts: Layouts,
    lives: Lives,
    guests: Sequence[str],
    hosts: Sequence[str],
    targets: Targets,
) -> dict[str, Lodging]:
    """Where guests find room. Each lies as far behind as it can; what is alive together lies in different hosts."""
    found: dict[str, Lodging] = {}
    rooms = [name for name in hosts if _is_plain(layouts[name])]
    users = _users(steps) if guests and rooms else {}
    for guest in guests:
        layout = layouts[guest]
        if not _is_plain(layout):
            continue
        step = targets[layout.device.type].alignment_bytes // layout.dtype.itemsize
        for host in rooms:
            whole, needed = (layouts[name].reach.value or 0 for name in (host, guest))
            place = (whole - needed) // step * step
            # A host is not made earlier than the guest's last reader would make it.
            if place < 0 or lives.first[host] > lives.last[guest]:
                continue
            if (layouts[host].dtype, layouts[host].device) != (layout.dtype, layout.device):
                continue
            if any(lodging.host == host and _together(lives, g, guest) for g, lodging in found.items()):
                continue
            before = [steps[position] for position in users[host] if position <= lives.last[guest]]
            if all(_end(step, host, kernels, whole) <= place for step in before):
                found[guest] = Lodging(host, place)
                break
    return found


def moved_in(guest: str, lodging: Lodging, layouts: Layouts) -> Library:
    """The step that makes a guest: a view of its host."""
    host, layout = layouts[lodging.host], layouts[guest]
    whole = Stored(lodging.host, host.dtype, host.device, host.sizes, host.strides)
    sizes, strides = ([number.value for number in numbers] for numbers in (layout.sizes, layout.strides))
    arguments = (whole, sizes, strides, lodging.offset)
    return Library(torch.ops.aten.as_strided.default, arguments, (), (guest,), (layout,), False, True)


def _is_plain(layout: Layout) -> bool:
    """Is its size known, with each element in a place of its own?"""
    return bool(layout.reach.value) and is_dense(layout.sizes, layout.strides)


def _together(lives: Lives, a: str, b: str) -> bool:
    return lives.first[a] <= lives.last[b] and lives.first[b] <= lives.last[a]


def _users(steps: Steps) -> dict[str, list[int]]:
    """Positions of the steps that use each buffer."""
    users: dict[str, list[int]] = {}
    for position, step in enumerate(steps):
        for name in dict.fromkeys(uses(step)):
            users.setdefault(name, []).append(position)
    return users


def _end(step: Step, name: str, kernels: Sequence[Kernel], whole: int) -> int:
    """How far into a buffer a step that uses it reaches."""
    if not isinstance(step, Run) or step.buffers.count(name) > 1:
        return whole
    kernel, number = kernels[step.kernel], step.buffers.index(name)
    if kernel.product is not None and number in kernel.product.arguments:
        return whole
    ranges = ranges_of((*kernel.outer, *kernel.inner))
    accesses = (i for phase in kernel.phases for _, i in phase.lines if isinstance(i, (Load, Store)))
    places = [constant(0) + i.index for i in accesses if i.buffer == f"a{number}"]
    high = max((bounds(place, ranges).high for place in places), default=-1)
    return whole if high >= whole else int(high) + 1
