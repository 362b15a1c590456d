"""How a kernel's loops run on a processor with vectors and threads: decided by how memory is walked."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeGuard

from stoker.loop.index import Dimension, Dimensions, coefficient, count, is_computed, most_crossed, uses, walks
from stoker.loop.instruction import Indirect, Load, LoopInstruction, Reduce, Store
from stoker.schedule.kernel import Kernel


class Shape(Enum):
    """How a kernel's loops run."""

    PLAIN = "no inner loops: the last outer loop walks along memory"
    CROSSWISE = (
        "no inner loops: some memory is walked along by the last outer loop, some by another, so both run in tiles"
    )
    ROWS = "inner loops walk along memory"
    COLUMNS = "the last outer loop walks along memory, inner loops run around it"
    WHOLE = "few outer points, long inner loops: threads share each reduction"


WHOLE_ROWS = 4
"""With fewer outer points than this, threads share the inner loops."""


def shape_of_kernel(kernel: Kernel) -> Shape:
    """The shape of a finished kernel."""
    across = [i for p in kernel.phases if p.across or not kernel.inner for _, i in p.lines]
    shape = shape_of(kernel.outer, kernel.inner, across)
    looked_up = any(isinstance(i, Indirect) for p in kernel.phases if not p.across for _, i in p.lines)
    if shape is Shape.COLUMNS and looked_up:
        return Shape.ROWS  # a computed index is a variable of one outer point, not of a strip
    return shape


def shape_of(outer: Dimensions, inner: Dimensions, across: Sequence[LoopInstruction]) -> Shape:
    """The shape for these loops, from the instructions inside the inner ones, or all if there are none."""
    if not inner:
        return Shape.PLAIN if crossing(outer, across) is None else Shape.CROSSWISE
    if any(isinstance(i, Reduce) and i.kind.startswith("arg") for i in across):
        return Shape.ROWS
    if outer and _votes(across, outer[-1]) > _votes(across, inner[-1]):
        return Shape.COLUMNS
    rows = count(outer).value
    return Shape.WHOLE if rows is not None and rows < WHOLE_ROWS else Shape.ROWS


SMALLEST_TILE = 8
"""Loops that run less often than this are not worth cutting into tiles."""


def crossing(outer: Dimensions, lines: Sequence[LoopInstruction]) -> Dimension | None:
    """The loop along which accesses walk that cross the last one; None if there is none worth tiles."""
    if any(isinstance(i, Store) and i.combine for i in lines) or len(outer) < 2:
        return None
    least = (SMALLEST_TILE, SMALLEST_TILE)
    return most_crossed(outer, lambda loop, last: sum(crosses(i, loop, last) for i in lines), least)


def crosses(i: LoopInstruction, loop: Dimension, last: Dimension) -> TypeGuard[Load | Store]:
    """Does an access walk along memory with this loop, and jump with the last one?"""
    if not isinstance(i, (Load, Store)) or (isinstance(i, Load) and i.arguments):
        return False
    along, jump = coefficient(i.index, loop.symbol), coefficient(i.index, last.symbol)
    if along is None or jump is None or along.value != 1 or jump.value in (0, 1):
        return False
    return not uses(jump, loop.symbol) and not is_computed(i.index)


def _votes(across: Sequence[LoopInstruction], loop: Dimension) -> int:
    """Accesses that walk along memory with this loop."""
    return sum(walks(i.index, loop) for i in across if isinstance(i, (Load, Store)))
