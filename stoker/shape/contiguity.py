"""When do strides leave no gap between elements?

In:  sizes and strides as expressions, simplified, and their environment.
Out: conditions. What is asked about an order alone is decided at once, on hints; the environment guards it.

Dimensions of one element may have any stride, and a tensor without elements has every layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.shape import condition as cond
from stoker.shape.condition import Condition, Known
from stoker.shape.env import ShapeEnv
from stoker.shape.expr import Expr, Max, constant
from stoker.shape.prove import Proof

Numbers = Sequence[Expr]


def contiguous(env: ShapeEnv, sizes: Numbers, strides: Numbers) -> Condition:
    """In the order of the dimensions."""
    return _in_order(env, sizes, strides, range(len(sizes)))


def channels_last(env: ShapeEnv, sizes: Numbers, strides: Numbers, rank: int) -> Condition:
    """In the order batch, space, channels."""
    if len(sizes) != rank:
        return cond.known(False)
    return _in_order(env, sizes, strides, (0, *range(2, rank), 1))


def channels_innermost(env: ShapeEnv, sizes: Numbers, strides: Numbers, rank: int) -> Condition:
    """Do strides grow from channels over space to batch, gaps or not?"""
    if len(sizes) != rank or env.decide(cond.Eq(strides[1], 0)):
        return cond.known(False)
    least = constant(0)
    for i in (1, *range(rank - 1, 1, -1), 0):
        if env.decide(cond.Eq(sizes[i], 0)) or env.decide(cond.Lt(strides[i], least)):
            return cond.known(False)
        if i == 0 and env.decide(cond.Eq(least, strides[1])):
            return cond.known(False)
        least = strides[i] * sizes[i] if env.decide(cond.Gt(sizes[i], 1)) else strides[i]
    return cond.known(True)


def dense(env: ShapeEnv, sizes: Numbers, strides: Numbers) -> Condition:
    """In some order: that of the strides' hints."""
    plain = contiguous(env, sizes, strides)
    if isinstance(plain, Known) and plain.value:
        return plain
    if not all(env.has_hint(number) for number in (*sizes, *strides)):
        return cond.known(False)
    order = sorted(range(len(sizes)), key=lambda i: (env.size_hint(strides[i]), -i), reverse=True)
    return _in_order(env, sizes, strides, order)


def asks_for_unit_stride(condition: Condition) -> bool:
    """Is it whether a contiguous tensor has the stride 1 where another dimension lies behind it, which has at most one element then?"""
    if not isinstance(condition, cond.Comparison) or condition.relation is not cond.Relation.EQ:
        return False
    stride = condition.expr + 1
    return isinstance(stride, Max) and constant(1) in stride.arguments


def _in_order(env: ShapeEnv, sizes: Numbers, strides: Numbers, order: Sequence[int]) -> Condition:
    """Do dimensions in this order, slowest first, leave no gap?"""
    conditions: list[Condition] = []
    expected = constant(1)
    for i in reversed(order):
        conditions.append(cond.Or(cond.Eq(sizes[i], 1), cond.Eq(strides[i], expected)))
        expected = expected * sizes[i]
    empty = [cond.Eq(size, 0) for size in sizes]
    return env.simplify_condition(_proven(env, cond.Or(*empty, cond.And(*conditions))))


def _proven(env: ShapeEnv, condition: Condition) -> Condition:
    """The condition with proven parts replaced by their answers."""
    if isinstance(condition, cond.Junction):
        return (cond.And if condition.conjunction else cond.Or)(*(_proven(env, p) for p in condition.parts))
    answer = env.prove(condition)
    return condition if answer is Proof.UNKNOWN else cond.known(answer is Proof.YES)
