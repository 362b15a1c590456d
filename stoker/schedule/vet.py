"""Check the computed places that inputs are written at, before anything is written.

In:  the steps of a plan, without memory; their kernels; and which results become the content of inputs (their homes).
Out: the same steps. Each kernel that stores to computed places of such a result has one before it that finds these places, stores
     nothing, and raises where one is out of range. The first is `vetted`: it cannot fail any more.

A call that fails leaves inputs as they were, and CPython runs the program again from its start (`stoker.graph.undo`). So a cache of keys
could not be written in place (`stoker.schedule.overwrite`) by the kernel that finds the place. Places are few beside the elements that
are written there: loops that only choose elements are left out, and one check serves all that write to the same places.

Requirements, held by tests/unit/schedule/test_vet.py and tests/differential/test_in_place.py:
  1. A check looks at the same places, under the same conditions, as the kernel that it stands for.
  2. It runs as early as what it reads is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stoker.loop.index import Dimension
from stoker.loop.instruction import Indirect, Load, LoopInstruction, Store, index_expressions, with_expressions
from stoker.schedule.kernel import Kernel, Line, Phase, leading_to
from stoker.schedule.step import Library, Run, Step, Steps
from stoker.shape.expr import Atom, Symbol, symbol
from stoker.shape.walk import free_symbols, substitute


def vet(steps: Steps, kernels: list[Kernel], homes: Mapping[str, str]) -> list[Step]:
    """The steps with their checks. Kernels of checks are appended to `kernels`."""
    checks: dict[int, list[Run]] = {}
    vetted: list[Step] = []
    for position, step in enumerate(steps):
        if not isinstance(step, Run) or not _stores_at_computed_places(step, kernels[step.kernel], homes):
            vetted.append(step)
            continue
        check = _check(step, kernels)
        ready = _ready(check, steps[:position], kernels)
        if not any(check in found for at, found in checks.items() if at <= ready):
            checks.setdefault(ready, []).append(check)
        vetted.append(replace(step, vetted=True))
    return [s for position, step in enumerate(vetted) for s in (*checks.get(position, ()), step)]


def _stores_at_computed_places(step: Run, kernel: Kernel, homes: Mapping[str, str]) -> bool:
    """May it fail, and is all that it stores the content of inputs?"""
    lines = [i for phase in kernel.phases for _, i in phase.lines]
    stores = [i for i in lines if isinstance(i, Store)]
    return (
        kernel.device.type == "cpu"  # a device tells later
        and not kernel.inner
        and any(isinstance(i, Indirect) for i in lines)
        and bool(stores)
        and all(i.combine is not None and step.buffers[int(i.buffer[1:])] in homes for i in stores)
    )


def _check(step: Run, kernels: list[Kernel]) -> Run:
    """The call of a kernel that only finds the places."""
    kernel = kernels[step.kernel]
    whole = [line for phase in kernel.phases for line in phase.lines]
    needed = leading_to(whole, (number for number, i in whole if isinstance(i, Indirect)))
    lines = [line for line in whole if line[0] in needed]
    used = sorted({int(i.buffer[1:]) for _, i in lines if isinstance(i, Load)})
    found = frozenset(s for _, i in lines for e in index_expressions(i) for s in free_symbols(e))
    check = replace(
        kernel,
        outer=tuple(loop for loop in kernel.outer if _matters(loop, found)),
        phases=(Phase(False, tuple(_renamed(lines, used))),),
        arguments=tuple(kernel.arguments[a] for a in used),
        written=frozenset(),
    )
    if check not in kernels:
        kernels.append(check)
    return Run(kernels.index(check), tuple(step.buffers[a] for a in used), step.sizes)


def _matters(loop: Dimension, found: frozenset[Symbol]) -> bool:
    """Do places depend on a loop? One that may be empty decides whether there are any."""
    return loop.symbol in found or not loop.size.value


def _renamed(lines: Sequence[Line], used: Sequence[int]) -> list[Line]:
    """Values, buffers and places counted from 0, so that equal checks are equal objects."""
    numbers = {number: new for new, (number, _) in enumerate(lines)}
    places: dict[Atom, Symbol] = {i.name: symbol(f"x{numbers[n]}") for n, i in lines if isinstance(i, Indirect)}

    def renamed(i: LoopInstruction) -> LoopInstruction:
        i = with_expressions(i, lambda e: substitute(e, places))
        if isinstance(i, Load):
            i = replace(i, buffer=f"a{used.index(int(i.buffer[1:]))}")
        if isinstance(i, Indirect):
            i = replace(i, name=places[i.name])
        return replace(i, arguments=tuple(numbers[a] for a in i.arguments))

    return [(numbers[number], renamed(i)) for number, i in lines]


def _ready(check: Run, before: Steps, kernels: Sequence[Kernel]) -> int:
    """The first position at which all that it reads has been made."""
    made = [position for position, step in enumerate(before) if not _makes(step, kernels).isdisjoint(check.buffers)]
    return max(made, default=-1) + 1


def _makes(step: Step, kernels: Sequence[Kernel]) -> set[str]:
    match step:
        case Run():
            return {step.buffers[a] for a in kernels[step.kernel].written}
        case Library():
            return set(step.made)
    return set()
