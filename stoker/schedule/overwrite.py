"""Which results are written over memory that dies as they are made.

In:  the steps of a plan, without memory, and their kernels.
Out: the steps, in which a result and the buffer it is written over have one name; and for each kernel the arguments that may
     then be one memory.

A kernel may write over an argument if it reads each of its elements only in the iteration that writes the element of the
same place, and before it does. The buffer must be made by the plan, be needed by no later step, and be as large. An input is written
over by the result that becomes its content after the call, its home (`Program.homes`), once no step reads it and none can fail.

Requirements, held by tests/unit/schedule/test_overwrite.py and tests/fuzz/test_memory.py:
  1. No element is read after it was written over.
  2. Constants, outputs, results that a library call made to share memory, and inputs that are not homes are never written over.
  3. An input is written over when everything that may raise has run: a call that fails leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stoker.graph.raising import operator_raises
from stoker.loop.instruction import Indirect, Load, Scan, Store
from stoker.loop.layout import Layout, Layouts, is_dense
from stoker.loop.view import Stored
from stoker.nest import map_leaves
from stoker.schedule.kernel import Kernel
from stoker.schedule.step import Library, Run, Step, Steps
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
    steps: Steps,
    kernels: Sequence[Kernel],
    layouts: Layouts,
    lives: Lives,
    outside: set[str],
    outputs: set[str],
    homes: Mapping[str, str] | None = None,
) -> Overwritten:
    """Write results over what dies, and over their homes, wherever that is safe."""
    fixed = outside | outputs | lives.sharing
    made_alone, made_together = _made_by_library(steps)
    fixed |= made_together
    able = [overwritable(kernel) for kernel in kernels]
    shared: dict[int, set[int]] = {}
    over: dict[str, str] = {}
    sure = 1 + max((n for n, step in enumerate(steps) if may_raise(step, kernels)), default=-1)
    for position, step in enumerate(steps):
        if not isinstance(step, Run):
            continue
        for target, y in enumerate(step.buffers):
            x = (homes or {}).get(y)
            if x is None or position < sure or lives.first[y] != position or x in lives.sharing or y in lives.sharing:
                continue
            sources = [s for s, t in able[step.kernel] if t == target and step.buffers[s] == x]
            if lives.last.get(x, -1) < position:
                over[y] = x
            elif lives.last[x] == position and sources:
                over[y] = x
                shared.setdefault(step.kernel, set()).update((sources[0], target))
        taken: set[str] = set()
        for source, target in able[step.kernel]:
            x, y = step.buffers[source], step.buffers[target]
            if x in taken or y in over or x in fixed or y in lives.sharing:
                continue
            if lives.last[x] != position or lives.first[y] != position or not _alike(layouts[x], layouts[y]):
                continue
            if _root(x, over) in made_alone and layouts[x] != layouts[y]:
                continue  # the library's tensor itself may be returned, so it must look like the result
            taken.add(x)
            over[y] = x
            shared.setdefault(step.kernel, set()).update((source, target))
    at_home = {result for result, below in over.items() if (homes or {}).get(result) == below}
    names = _names(over, outputs - at_home)
    return Overwritten(
        [s for step in steps if not _changes_nothing(s := _renamed(step, names), kernels)],
        tuple(replace(k, shared=frozenset(shared[n])) if n in shared else k for n, k in enumerate(kernels)),
        tuple(over.items()),
    )


def overwritable(kernel: Kernel) -> list[tuple[int, int]]:
    """Pairs of arguments: one that is only read, and one that may be written over it."""
    reads: dict[str, set[Expr]] = {}
    writes: dict[str, set[Expr]] = {}
    last_read: dict[str, int] = {}
    first_write: dict[str, int] = {}
    whole = kernel.product.arguments if kernel.product else frozenset()  # every iteration reads much of them
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
        and int(x[1:]) not in whole
        and x not in writes
        and read == written
        and len(read) == 1
        and last_read[x] < first_write[y]
    ]


def may_raise(step: Step, kernels: Sequence[Kernel]) -> bool:
    """May a step fail because of the data it is given?"""
    match step:
        case Run():
            kernel = kernels[step.kernel]
            checks = any(isinstance(i, Indirect) for phase in kernel.phases for _, i in phase.lines)
            return checks and not step.vetted and kernel.device.type == "cpu"  # a device tells later
        case Library():
            return operator_raises(step.operator)
    return False


def _changes_nothing(step: Step, kernels: Sequence[Kernel]) -> bool:
    """Does a step only copy buffers to themselves?"""
    if not isinstance(step, Run) or kernels[step.kernel].product is not None:
        return False
    lines = [line for phase in kernels[step.kernel].phases for line in phase.lines]
    loads = {number: i for number, i in lines if isinstance(i, Load) and not i.arguments}
    stores = [i for _, i in lines if isinstance(i, Store)]
    if len(loads) + len(stores) < len(lines):
        return False

    def stays(store: Store) -> bool:
        load = loads[store.arguments[0]]
        names = [step.buffers[int(i.buffer[1:])] for i in (load, store)]
        return names[0] == names[1] and load.index == store.index and not store.combine

    return all(map(stays, stores))


def _alike(x: Layout, y: Layout) -> bool:
    """Are both as large, of one type, with each element of the second in a place of its own?"""
    return x.dtype is y.dtype and x.device == y.device and x.reach is y.reach and is_dense(y.sizes, y.strides)


def _made_by_library(steps: Steps) -> tuple[set[str], set[str]]:
    """Buffers that a library call makes: alone, and together with others, with which they may share memory."""
    alone: set[str] = set()
    together: set[str] = set()
    for step in steps:
        if isinstance(step, Library):
            (alone if len(step.made) == 1 else together).update(step.made)
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
    def renamed(leaf: object) -> object:
        if isinstance(leaf, Stored) and leaf.buffer in names:
            return replace(leaf, buffer=names[leaf.buffer])
        return leaf

    return map_leaves(renamed, value)
