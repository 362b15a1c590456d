"""Which results are written over memory that dies as they are made.

In:  the steps of a plan, without memory, and their kernels.
Out: the steps, in which a result and the buffer it is written over have one name; and for each kernel the arguments that may
     then be one memory.

A kernel may write over an argument if it reads each of its elements only in the iteration that writes the element of the
same place, and before it does. The buffer must be made by the plan, be needed by no later step, and be as large.

Requirements, held by tests/unit/schedule/test_overwrite.py and tests/fuzz/test_memory.py:
  1. No element is read after it was written over.
  2. Inputs, constants, outputs, and results that a library call made to share memory are never written over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stoker.loop.instruction import Load, Scan, Store
from stoker.loop.layout import Layout, is_dense
from stoker.loop.view import Stored
from stoker.schedule.kernel import Kernel
from stoker.schedule.step import Library, Run, Step
from stoker.shape.expr import Expr


@dataclass(frozen=True, slots=True)
class Lives:
    """For each buffer, the first and the last step that uses it; and the buffers whose memory others may share."""

    first: dict[str, int]
    last: dict[str, int]
    sharing: set[str]


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The plan with one name for each memory; `over` lists (result, what it is written over) in the order of the steps."""

    steps: list[Step]
    kernels: tuple[Kernel, ...]
    over: tuple[tuple[str, str], ...]


def overwrite(
    steps: Sequence[Step],
    kernels: Sequence[Kernel],
    layouts: dict[str, Layout],
    lives: Lives,
    outside: set[str],
    outputs: set[str],
) -> Overwritten:
    """Write results over what dies, wherever that is safe."""
    fixed = outside | outputs | lives.sharing
    made_alone, made_together = _made_by_library(steps)
    able = [overwritable(kernel) for kernel in kernels]
    shared: dict[int, set[int]] = {}
    over: dict[str, str] = {}
    for position, step in enumerate(steps):
        if not isinstance(step, Run):
            continue
        taken: set[str] = set()
        for source, target in able[step.kernel]:
            x, y = step.buffers[source], step.buffers[target]
            if x in taken or y in over or x in fixed | made_together or y in lives.sharing:
                continue
            if lives.last[x] != position or lives.first[y] != position or not _alike(layouts[x], layouts[y]):
                continue
            if _root(x, over) in made_alone and layouts[x] != layouts[y]:
                continue  # the library's tensor itself may be returned, so it must look like the result
            taken.add(x)
            over[y] = x
            shared.setdefault(step.kernel, set()).update((source, target))
    names = _names(over, outputs)
    return Overwritten(
        [_renamed(step, names) for step in steps],
        tuple(replace(k, shared=frozenset(shared[n])) if n in shared else k for n, k in enumerate(kernels)),
        tuple(over.items()),
    )


def overwritable(kernel: Kernel) -> list[tuple[int, int]]:
    """Pairs of arguments: one that is only read, and one that may be written over it."""
    reads: dict[str, set[Expr]] = {}
    writes: dict[str, set[Expr]] = {}
    last_read: dict[str, int] = {}
    first_write: dict[str, int] = {}
    for place, (_, i) in enumerate(line for phase in kernel.phases for line in phase.lines):
        if isinstance(i, Scan) or (isinstance(i, Store) and i.combine):
            return []  # such kernels may visit an element more than once
        if isinstance(i, Load):
            reads.setdefault(i.buffer, set()).add(i.index)
            last_read[i.buffer] = place
        elif isinstance(i, Store):
            writes.setdefault(i.buffer, set()).add(i.index)
            first_write.setdefault(i.buffer, place)
    return [
        (int(x[1:]), int(y[1:]))
        for y, written in writes.items()
        for x, read in reads.items()
        if x[0] == y[0] == "a"
        and x not in writes
        and read == written
        and len(read) == 1
        and last_read[x] < first_write[y]
    ]


def _alike(x: Layout, y: Layout) -> bool:
    """Are both as large, of one type, with each element of the second in a place of its own?"""
    return x.dtype is y.dtype and x.device == y.device and x.reach is y.reach and is_dense(y.sizes, y.strides)


def _made_by_library(steps: Sequence[Step]) -> tuple[set[str], set[str]]:
    """Buffers that a library call makes: alone, and together with others, with which they may share memory."""
    alone: set[str] = set()
    together: set[str] = set()
    for step in steps:
        if isinstance(step, Library):
            made = [r for r in step.results if r is not None]
            (alone if len(made) == 1 else together).update(made)
    return alone, together


def _root(name: str, over: dict[str, str]) -> str:
    while name in over:
        name = over[name]
    return name


def _names(over: dict[str, str], outputs: set[str]) -> dict[str, str]:
    """One name for each memory: the output's, if one ends up there, else the first."""
    names: dict[str, str] = {}
    for result, below in over.items():
        names[result] = names.get(below, below)
    ends = {names[n]: n for n in names if n in outputs}
    return {n: ends.get(root, root) for n, root in ((n, names.get(n, n)) for n in {*over, *over.values()})}


def _renamed(step: Step, names: dict[str, str]) -> Step:
    match step:
        case Run():
            return replace(step, buffers=tuple(names.get(b, b) for b in step.buffers))
        case Library():
            return replace(
                step,
                arguments=_renamed_in(step.arguments, names),
                keywords=_renamed_in(step.keywords, names),
                results=tuple(r if r is None else names.get(r, r) for r in step.results),
            )
    return step


def _renamed_in(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Stored):
        return replace(value, buffer=names[value.buffer]) if value.buffer in names else value
    if isinstance(value, (list, tuple)):
        return type(value)(_renamed_in(v, names) for v in value)
    return value
