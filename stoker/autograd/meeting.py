"""Where elements of tensors meet in memory: within one tensor, or between two on the same memory.

In:  metadata. Symbolic sizes count by their hints: which elements meet is a matter of the program, seldom of a size. A size that
     only data tells counts as the largest it can be, and a place in memory that only data tells may be any.
Out: answers that err on the side of "yes".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.fake.meta import Meta
from stoker.shape.prove import bounds


def repeats(meta: Meta) -> bool:
    """Are several of its elements one in memory by a stride of 0, as after `expand`? Eager refuses to write there."""
    return any(type(t) is int and t == 0 and s != 1 for s, t in zip(meta.sizes, meta.strides)) and all(meta.sizes)


def meets_itself(meta: Meta) -> bool:
    """May several of its elements be one in memory, as after `expand` and `unfold`?"""
    steps = sorted((t, s) for s, t in zip(_numbers(meta.sizes), _numbers(meta.strides)) if s != 1)
    if any(s == 0 for _, s in steps):
        return False
    reach = 0
    for stride, size in steps:
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def meet(a: Meta, b: Meta) -> bool:
    """May an element of one be one of the other, and not the one at its own place? Both lie on the same memory."""
    if 0 in (*_numbers(a.sizes), *_numbers(b.sizes)) or a is b:
        return False
    if a.dtype.itemsize != b.dtype.itemsize:
        return True
    if _is_untold(b.offset - a.offset):
        return True
    distance = _numbers((b.offset - a.offset,))[0]
    first, second = _aligned(a, b), _aligned(b, a)
    if any(s != t and m != 1 and n != 1 for (m, s), (n, t) in zip(first, second)):
        return distance <= _reach(first) and -distance <= _reach(second)
    steps = [(s if m != 1 else t, m - 1, n - 1) for (m, s), (n, t) in zip(first, second) if m != 1 or n != 1]
    if not distance and all(m == n for _, m, n in steps):
        return False
    return _some_step(distance, sorted(steps, reverse=True))


def apart(a: Meta, b: Meta) -> bool:
    """Do two tensors on the same memory have no element in common?"""
    return a is not b and not meet(a, b) and _numbers((b.offset - a.offset,)) != [0]


def _numbers(values: Sequence[Any]) -> list[int]:
    return [v if isinstance(v, int) else _most(v) if _is_untold(v) else int(v.node.hint) for v in values]


def _is_untold(value: Any) -> bool:
    return not isinstance(value, int) and not value.node.has_hint()


UNBOUNDED = 4096
"""What a size of which no bound is known counts as."""


def _most(value: Any) -> int:
    high = bounds(value.node.expr, value.node.env.ranges).high
    return int(high) if high < 1 << 31 else UNBOUNDED


def _aligned(meta: Meta, other: Meta) -> list[tuple[int, int]]:
    """(size, stride) of each dimension, as broadcasting pads them."""
    missing = max(len(other.sizes) - len(meta.sizes), 0)
    return [(1, 0)] * missing + list(zip(_numbers(meta.sizes), _numbers(meta.strides)))


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
