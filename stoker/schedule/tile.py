"""Shapes of loops: merging neighbours that memory does not tell apart, and which loops run as vectors and threads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from stoker.loop.body import Instruction
from stoker.loop.index import Dimension, Dimensions, coefficient, count, uses
from stoker.shape.expr import Expr, Symbol, constant, free_symbols, substitute


def merge_loops(loops: Dimensions, indices: Sequence[Expr]) -> tuple[Dimensions, dict[Symbol, Expr]]:
    """Loops with neighbours merged where every index allows it, and how to rewrite indices for them.

    Two loops a, b (b inside) are one of size a * b if each index uses them only as stride * (a * size of b + b). The merged
    loop keeps b's symbol, and a becomes 0.
    """
    done: list[Dimension] = []
    change: dict[Symbol, Expr] = {}
    indices = list(dict.fromkeys(indices))
    for loop in reversed(loops):
        if done and all(_mergeable(e, loop, done[-1]) for e in indices):
            done[-1] = Dimension(done[-1].symbol, loop.size * done[-1].size)
            change[loop.symbol] = constant(0)
            indices = [substitute(e, {loop.symbol: constant(0)}) for e in indices]
        else:
            done.append(loop)
    return tuple(reversed(done)), change


def _mergeable(index: Expr, outside: Dimension, inside: Dimension) -> bool:
    if not uses(index, outside.symbol) and not uses(index, inside.symbol):
        return True
    a, b = coefficient(index, outside.symbol), coefficient(index, inside.symbol)
    return a is not None and b is not None and a is b * inside.size


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


def shape_of(outer: Dimensions, inner: Dimensions, across: Sequence[Instruction]) -> Shape:
    """The shape for these loops, from the instructions inside the inner ones, or all if there are none."""
    if not inner:
        return Shape.PLAIN if crossing(outer, across) is None else Shape.CROSSWISE
    if any(i.op == "reduce" and i.data.startswith("arg") for i in across):
        return Shape.ROWS
    if outer and _votes(across, outer[-1]) > _votes(across, inner[-1]):
        return Shape.COLUMNS
    rows = count(outer).value
    return Shape.WHOLE if rows is not None and rows < WHOLE_ROWS else Shape.ROWS


SMALLEST_TILE = 8
"""Loops that run less often than this are not worth cutting into tiles."""


def crossing(outer: Dimensions, lines: Sequence[Instruction]) -> Dimension | None:
    """The loop along which accesses walk that cross the last one; None if there is none worth tiles."""
    if any(i.op == "store" and i.data[2] for i in lines) or len(outer) < 2:
        return None
    *others, last = outer
    votes = {loop: sum(crosses(i, loop, last) for i in lines) for loop in others}
    most = max(votes, key=votes.__getitem__)
    small = any(d.size.value is not None and d.size.value < SMALLEST_TILE for d in (most, last))
    return None if small or not votes[most] else most


def crosses(i: Instruction, loop: Dimension, last: Dimension) -> bool:
    """Does an access walk along memory with this loop, and jump with the last one?"""
    if i.op not in ("load", "store") or (i.op == "load" and i.arguments):
        return False
    along, jump = coefficient(i.data[1], loop.symbol), coefficient(i.data[1], last.symbol)
    if along is None or jump is None or along.value != 1 or jump.value in (0, 1):
        return False
    return not uses(jump, loop.symbol) and not _computed(i.data[1])


def _computed(index: Expr) -> bool:
    """Does it depend on an index that was looked up?"""
    return any(s.name.startswith("x") for s in free_symbols(index))


def _votes(across: Sequence[Instruction], loop: Dimension) -> int:
    """Accesses that walk along memory with this loop."""
    strides = [coefficient(i.data[1], loop.symbol) for i in across if i.op in ("load", "store")]
    return sum(s is not None and s.value == 1 for s in strides)


LARGEST_SCRATCH_BYTES = 1 << 17


def fits_scratch(inner: Dimensions, item_bytes: int) -> bool:
    """Can what one outer point makes and uses stay in the fastest memory?"""
    elements = count(inner).value
    return elements is not None and elements * item_bytes <= LARGEST_SCRATCH_BYTES


def position_in(loops: Dimensions) -> Expr:
    """How far nested loops have come."""
    total = constant(0)
    for loop in loops:
        total = total * loop.size + loop.symbol
    return total
