"""A value that goes to many places is written to one of them, row by row, and each row is copied to the others.

In:  a kernel of one phase.
Out: the kernel with one store of each such value, and what is to be copied.

A layer of a DenseNet writes its result into all later concatenations of its block. g++ takes a third of a second for a loop with twenty
stores, and no time for a loop over twenty copies, which is the same code for any number of them (`share.py`).

Requirements, held by tests/stages/test_cliffs.py:
  1. Only memory is copied to that the kernel touches nowhere else, and that is no other argument's.
  2. Copies run along memory: the last loop moves one element at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from stoker.loop.index import coefficient
from stoker.loop.instruction import Load, Store
from stoker.schedule.kernel import Kernel, Line

MANY = 4
"""So many places are worth a loop."""
SHORTEST_ROW = 32
"""Elements below which a copy is more trouble than a store."""


@dataclass(frozen=True, slots=True)
class Copies:
    """A store, and the numbers of the arguments that get the same at the same places."""

    store: Store
    others: range


def spread(kernel: Kernel) -> tuple[Kernel, tuple[Copies, ...]]:
    """Leave one store of those that write one value to equal places."""
    if len(kernel.outer) < 2 or kernel.inner or (kernel.outer[-1].size.value or 0) < SHORTEST_ROW:
        return kernel, ()
    (phase,) = kernel.phases
    copies = tuple(_copies(kernel, phase.lines))
    gone = {position for c in copies for position in c.others}
    lines = tuple(line for line in phase.lines if not (isinstance(line[1], Store) and _position(line[1]) in gone))
    return (replace(kernel, phases=(replace(phase, lines=lines),)), copies) if copies else (kernel, ())


def _copies(kernel: Kernel, lines: tuple[Line, ...]) -> Iterator[Copies]:
    alike: dict[Store, list[Store]] = {}
    for store in _alone(kernel, lines):
        alike.setdefault(replace(store, buffer=""), []).append(store)
    for stores in alike.values():
        along = coefficient(stores[0].index, kernel.outer[-1].symbol)
        if along is None or along.value != 1:
            continue
        first = min(stores, key=_position)
        positions = sorted(_position(s) for s in stores if s is not first)
        for _, run in groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0]):
            numbers = [position for _, position in run]
            if len(numbers) >= MANY:
                yield Copies(first, range(numbers[0], numbers[-1] + 1))


def _alone(kernel: Kernel, lines: tuple[Line, ...]) -> list[Store]:
    """Stores to what nothing else in the kernel reads or writes."""
    touched = [i.buffer for _, i in lines if isinstance(i, (Load, Store))]
    found = [i for _, i in lines if isinstance(i, Store) and i.combine is None and touched.count(i.buffer) == 1]
    return [i for i in found if i.buffer[0] == "a" and _position(i) not in kernel.shared and _fits(kernel, i)]


def _fits(kernel: Kernel, store: Store) -> bool:
    return kernel.arguments[_position(store)] is store.dtype


def _position(store: Store) -> int:
    return int(store.buffer[1:])
