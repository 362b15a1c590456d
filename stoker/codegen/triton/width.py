"""In how many bits does a kernel compute its places?

In:  a kernel, and what is known of its loops and computed indices.
Out: a `Width`. 32 bits are faster, and enough for nearly all memory. Where sizes are known only at a call, a kernel is written for 32
     bits if nothing but these sizes can be too large, and the executor looks at them before it runs the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from stoker.loop.index import count
from stoker.loop.instruction import Index, Load, Store
from stoker.schedule.kernel import Kernel
from stoker.shape.expr import Expr, FloorDiv, Mod, Symbol
from stoker.shape.prove import Interval, bounds
from stoker.shape.walk import atoms, free_symbols

LIMIT = 2**31 - (1 << 16)
"""What numbers of 32 bits are below, with room for a tile that reaches past the end. csrc/plan_executor.cpp has the same."""


class Width(Enum):
    NARROW = "32 bits"
    LIMITED = "32 bits, if the sizes of a call allow it"
    WIDE = "64 bits"


def width_of(kernel: Kernel, ranges: Mapping[Symbol, Interval]) -> Width:
    """What the kernel's places, whole numbers and counts need."""
    lines = [i for phase in kernel.phases for _, i in phase.lines]
    numbers = [i.expr for i in lines if isinstance(i, Index)]
    found = [*(i.index for i in lines if isinstance(i, (Load, Store))), *numbers]
    found += [atom.numerator for e in found for atom in atoms(e) if isinstance(atom, (FloorDiv, Mod))]
    points = count(kernel.outer) * count(kernel.inner)
    if all(_is_small(e, ranges) for e in (*found, points)):
        return Width.NARROW
    loops = {d.symbol for d in (*kernel.outer, *kernel.inner)}
    # sizes, and indices that are read: these are wide
    told = {s for e in (*found, points) for s in free_symbols(e)} - loops
    plain = all(isinstance(atom, Symbol) for e in found for atom in atoms(e))
    known = [e for e in (*found, points) if free_symbols(e).isdisjoint(told) and _is_finite(e, ranges)]
    if not plain or any(not told.isdisjoint(free_symbols(e)) for e in numbers) or not points.terms:
        return Width.WIDE
    return Width.LIMITED if all(_is_small(e, ranges) for e in known) else Width.WIDE


def _is_small(expr: Expr, ranges: Mapping[Symbol, Interval]) -> bool:
    within = bounds(expr, ranges)
    return within.low > -LIMIT and within.high < LIMIT


def _is_finite(expr: Expr, ranges: Mapping[Symbol, Interval]) -> bool:
    within = bounds(expr, ranges)
    return abs(within.low) < float("inf") and abs(within.high) < float("inf")
