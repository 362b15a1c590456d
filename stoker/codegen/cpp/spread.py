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

from stoker.loop.index import walks
from stoker.loop.instruction import Load, Store
from stoker.schedule.kernel import Kernel, Line
from stoker.shape.expr import Expr, constant
from stoker.shape.walk import free_symbols

MANY = 4
"""So many places are worth a loop."""
SHORTEST_ROW = 32
"""Elements below which a copy is more trouble than a store."""


@dataclass(frozen=True, slots=True)
class Copies:
    """A store, and the numbers of the arguments that get the same value: the first at `index`, each further one `step` after the one before.
    Concatenations that grow by one layer each have the layer's result at such places, one sample of a batch after another."""

    store: Store
    others: range
    index: Expr
    step: Expr


def spread(kernel: Kernel) -> tuple[Kernel, tuple[Copies, ...]]:
    """Leave one store of those that write one value to places at equal distances."""
    if len(kernel.outer) < 2 or kernel.inner or (kernel.outer[-1].size.value or 0) < SHORTEST_ROW:
        return kernel, ()
    (phase,) = kernel.phases
    copies = tuple(_copies(kernel, phase.lines))
    gone = {position for c in copies for position in c.others}
    lines = tuple(line for line in phase.lines if not (isinstance(line[1], Store) and _position(line[1]) in gone))
    return (replace(kernel, phases=(replace(phase, lines=lines),)), copies) if copies else (kernel, ())


def _copies(kernel: Kernel, lines: tuple[Line, ...]) -> Iterator[Copies]:
    row, last = kernel.outer[-1], kernel.outer[-1].symbol
    alike: dict[Store, list[Store]] = {}
    for store in _alone(kernel, lines):
        if walks(store.index, row):
            alike.setdefault(replace(store, buffer="", index=constant(0)), []).append(store)
    for stores in alike.values():
        first, *others = sorted(stores, key=_position)
        for run in _runs(others):
            step = run[1].index - run[0].index if len(run) > 1 else constant(0)
            if len(run) >= MANY and last not in free_symbols(step):
                yield Copies(first, range(_position(run[0]), _position(run[-1]) + 1), run[0].index, step)


def _runs(stores: list[Store]) -> Iterator[list[Store]]:
    """Stores to one argument after the other, each as far from the one before as that is from its own."""
    run: list[Store] = []
    for store in stores:
        follows = bool(run) and _position(store) == _position(run[-1]) + 1
        if follows and (len(run) == 1 or store.index - run[-1].index is run[-1].index - run[-2].index):
            run.append(store)
            continue
        if run:
            yield run
        run = [store]
    if run:
        yield run


def _alone(kernel: Kernel, lines: tuple[Line, ...]) -> list[Store]:
    """Stores to what nothing else in the kernel reads or writes."""
    touched = [i.buffer for _, i in lines if isinstance(i, (Load, Store))]
    found = [i for _, i in lines if isinstance(i, Store) and i.combine is None and touched.count(i.buffer) == 1]
    given = [i for i in found if i.buffer[0] == "a" and _position(i) not in kernel.shared]
    return [i for i in given if kernel.arguments[_position(i)] is i.dtype]


def _position(store: Store) -> int:
    return int(store.buffer[1:])
