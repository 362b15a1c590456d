"""Padding by what is near the border: reflected, or repeated. Padding with a constant is in `move`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker.loop.body import LoopValue
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import require_supported
from stoker.lower.registry import Result, leave_if, lower
from stoker.shape.expr import Expr, as_expr, constant, maximum, minimum


def _reflected(i: Expr, size: Expr) -> Expr:
    """Mirrored at the first and the last element."""
    away = maximum(i, -1 * i)
    return minimum(away, 2 * size - 2 - away)


def _repeated(i: Expr, size: Expr) -> Expr:
    return minimum(maximum(i, constant(0)), size - 1)


_RANKS = ("1d", "2d", "3d")


@lower(*(f"reflection_pad{rank}.default" for rank in _RANKS), at_border=_reflected)
@lower(*(f"replication_pad{rank}.default" for rank in _RANKS), at_border=_repeated)
def padding(
    builder: Builder, out: Result, x: Tensor, amounts: Any, *, at_border: Callable[[Expr, Expr], Expr]
) -> Tensor:
    require_supported(x.dtype)
    leave_if(any(size.value == 0 for size in (*x.sizes, *out.sizes)), "an empty tensor")
    rank = len(x.sizes)
    before = {rank - 1 - position // 2: as_expr(amounts[position]) for position in range(0, len(amounts), 2)}

    def element(at: Index) -> LoopValue:
        inside = (at_border(i - before[d], x.sizes[d]) if d in before else i for d, i in enumerate(at))
        return x.at(tuple(inside))

    return builder.compute(out, element, [x], cost=4)
