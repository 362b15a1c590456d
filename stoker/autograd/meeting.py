"""Where elements of tensors meet in memory: within one tensor, or between two on the same memory.

In:  metadata. Symbolic sizes count by their hints; that one tensor ends before the other begins is guarded, and for others they count as
     some other numbers, too: which elements of interleaved tensors meet is a matter of the program, seldom of a size. A size that only data tells counts as the largest it can be, and a place in memory that only data tells may be any.
Out: answers that err on the side of "yes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stoker.fake.meet import ends_before
from stoker.fake.meta import Meta
from stoker.shape.condition import holds, symbols_of
from stoker.shape.expr import Symbol
from stoker.shape.prove import bounds
from stoker.shape.walk import evaluate, free_symbols


def repeats(meta: Meta) -> bool:
    """Are several of its elements one in memory by a stride of 0, as after `expand`? Eager refuses to write there."""
    return any(type(t) is int and t == 0 and s != 1 for s, t in zip(meta.sizes, meta.strides)) and all(meta.sizes)


def meets_itself(meta: Meta) -> bool:
    """May several of its elements be one in memory, as after `expand` and `unfold`?"""
    return _meets_itself(_example(meta, {}))


def meet(a: Meta, b: Meta) -> bool:
    """May an element of one be one of the other, and not the one at its own place? Both lie on the same memory."""
    if a is b:
        return False
    if _is_untold(b.offset - a.offset) or _meet(_example(a, {}), _example(b, {})):
        return True
    return not (ends_before(a, b) or ends_before(b, a)) and any(_meet(*pair) for pair in _examples(a, b))


def apart(a: Meta, b: Meta) -> bool:
    """Do two tensors on the same memory have no element in common?"""
    return a is not b and not meet(a, b) and _number(b.offset - a.offset, {}) != 0


@dataclass(frozen=True, slots=True)
class Example:
    """A tensor's place in memory, in numbers."""

    itemsize: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


Values = Mapping[Symbol, int]
"""Numbers that sizes might be in another call; where there are none, hints."""

OTHERWISE: tuple[Callable[[int], int], ...] = (
    lambda n: 2 * n, lambda n: 5 * n, lambda n: n - 1, lambda n: n - 2, lambda n: n // 2,
)  # fmt: skip
"""From what sizes and strides are to what they might be: all at once, so that those that fit each other still do."""
SMALLEST = 2
"""Sizes of 0 and 1 are no symbols."""


def _examples(a: Meta, b: Meta) -> Iterator[tuple[Example, Example]]:
    """Both as they might be in other calls."""
    now = _example(a, {}), _example(b, {})
    env = next((v.node.env for v in (*_numbers(a), *_numbers(b)) if not isinstance(v, int)), None)
    if env is None:
        return
    for change in OTHERWISE:
        values = {s: max(change(hint), min(SMALLEST, hint)) for s, hint in env.hints.items()}
        known = [g.condition for g in env.guards if symbols_of(g.condition) <= values.keys()]
        then = _example(a, values), _example(b, values)
        fits = [_meets_itself(one) for one in then] == [_meets_itself(one) for one in now]
        if fits and all(holds(condition, values) for condition in known):
            yield then


def _example(meta: Meta, values: Values) -> Example:
    sizes, strides = (tuple(_number(v, values) for v in numbers) for numbers in (meta.sizes, meta.strides))
    return Example(meta.dtype.itemsize, sizes, strides, _number(meta.offset, values))


def _numbers(meta: Meta) -> tuple[Any, ...]:
    return *meta.sizes, *meta.strides, meta.offset


def _number(value: Any, values: Values) -> int:
    if isinstance(value, int):
        return value
    if _is_untold(value):
        return _at_most(value, values)
    return evaluate(value.node.expr, values) if values else int(value.node.hint)


def _is_untold(value: Any) -> bool:
    return not isinstance(value, int) and not value.node.has_hint()


UNBOUNDED = 4096
"""What a size of which no bound is known counts as."""


def _at_most(value: Any, values: Values) -> int:
    """With each number that only data tells as large as it can be, so that sizes and the strides made of them fit."""
    env, expression = value.node.env, value.node.expr
    known = {**env.hints, **values}
    for symbol in free_symbols(expression) - known.keys():
        high = bounds(symbol, env.ranges).high
        known[symbol] = int(high) if high < 1 << 31 else UNBOUNDED
    return evaluate(expression, known)


def _meets_itself(tensor: Example) -> bool:
    steps = sorted((t, s) for s, t in zip(tensor.sizes, tensor.strides) if s != 1)
    if any(s == 0 for _, s in steps):
        return False
    reach = 0
    for stride, size in steps:
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _meet(a: Example, b: Example) -> bool:
    if 0 in (*a.sizes, *b.sizes):
        return False
    if a.itemsize != b.itemsize:
        return True
    distance = b.offset - a.offset
    first, second = _aligned(a, b), _aligned(b, a)
    if any(s != t and m != 1 and n != 1 for (m, s), (n, t) in zip(first, second)):
        return distance <= _reach(first) and -distance <= _reach(second)
    steps = [(s if m != 1 else t, m - 1, n - 1) for (m, s), (n, t) in zip(first, second) if m != 1 or n != 1]
    if not distance and all(m == n for _, m, n in steps):
        return False
    return _some_step(distance, sorted(steps, reverse=True))


def _aligned(tensor: Example, other: Example) -> list[tuple[int, int]]:
    """(size, stride) of each dimension, as broadcasting pads them."""
    missing = max(len(other.sizes) - len(tensor.sizes), 0)
    return [(1, 0)] * missing + list(zip(tensor.sizes, tensor.strides))


def _reach(dimensions: list[tuple[int, int]]) -> int:
    return sum((size - 1) * stride for size, stride in dimensions)


def _some_step(distance: int, steps: list[tuple[int, int, int]]) -> bool:
    """Is the distance a sum of strides, each taken at most so often forward and so often back? Largest strides first."""
    if not steps:
        return distance == 0
    (stride, forward, back), rest = steps[0], steps[1:]
    if stride == 0:
        return _some_step(distance, rest)
    ahead, behind = sum(t * f for t, f, _ in rest), sum(t * b for t, _, b in rest)
    least = max(-back, -(-(distance - ahead) // stride))
    most = min(forward, (distance + behind) // stride)
    return any(_some_step(distance - k * stride, rest) for k in range(least, most + 1))
