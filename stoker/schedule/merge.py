"""Nested loops: merging neighbours that memory does not tell apart, and how far they have come."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.loop.index import Dimension, Dimensions, coefficient, uses
from stoker.shape.expr import Expr, Symbol, constant
from stoker.shape.walk import substitute


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


def position_in(loops: Dimensions) -> Expr:
    """How far nested loops have come."""
    total = constant(0)
    for loop in loops:
        total = total * loop.size + loop.symbol
    return total
