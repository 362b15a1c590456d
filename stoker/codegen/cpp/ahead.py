"""Which memory a kernel of rows asks for ahead: what the next row will read, while this one is computed.

The processor foresees a walk along one row, not the jump over several passes to the next. The requests stand in the pass
that computes most, where there is time for them.
"""

from __future__ import annotations

from stoker.codegen.cpp.cost import cost
from stoker.codegen.cpp.shape import Shape
from stoker.loop.index import coefficient, count
from stoker.loop.instruction import Load
from stoker.schedule.kernel import Kernel, Phase
from stoker.shape.expr import Expr, symbol
from stoker.shape.walk import substitute

CACHED_BYTES = 1 << 20
"""A kernel that walks less than this is left alone: it is in a cache already."""
LINE_BYTES = 64
AHEAD = symbol("ahead")
"""Stands for the position in the last inner loop."""

Request = tuple[str, Expr, int]
"""An argument, the place of the next row in it, and the elements of a cache line."""


def requests(kernel: Kernel, shape: Shape) -> tuple[Phase | None, list[Request]]:
    """The phase to ask in, and what to ask for."""
    across = [p for p in kernel.phases if p.across]
    if shape is not Shape.ROWS or not kernel.outer or len(across) < 2 or len(kernel.inner) != 1:
        return None, []
    loads = dict.fromkeys(
        (i.buffer, i.index, i.dtype.itemsize) for p in across for _, i in p.lines if isinstance(i, Load)
    )
    found = []
    points = count(kernel.outer) * count(kernel.inner)
    row, inside = kernel.outer[-1].symbol, kernel.inner[-1].symbol
    for buffer, index, item_bytes in loads:
        step, along = coefficient(index, row), coefficient(index, inside)
        large = points.value is None or points.value * item_bytes > CACHED_BYTES
        walks = step is not None and step.value != 0 and along is not None and along.value == 1
        if buffer[0] == "a" and large and walks:
            found.append((buffer, substitute(index, {row: row + 1, inside: AHEAD}), LINE_BYTES // item_bytes))
    return max(across, key=lambda p: sum(cost(i) for _, i in p.lines)), found
