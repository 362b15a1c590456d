"""Between which bounds the whole numbers of a body lie, as far as its instructions tell.

In:  instructions by their numbers, and the ranges of symbols in indices.
Out: an `Interval` that contains a value wherever it is computed.

What must hold (tests/unit/loop/test_interval.py): arithmetic that might wrap around gives no bound.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import torch

from stoker.loop.instruction import Apply, Convert, Index, LoopInstruction, Number
from stoker.shape.expr import Symbol
from stoker.shape.prove import EVERYTHING, Interval, bounds

TRUTH = Interval(0, 1)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


class Intervals:
    """What is known of the values of one body."""

    def __init__(self, made: Mapping[int, LoopInstruction], ranges: Mapping[Symbol, Interval]) -> None:
        self.made, self.ranges = made, ranges
        self._known: dict[int, Interval] = {}

    def of(self, number: int) -> Interval:
        """The bounds of a value; infinite ones where nothing is known, or it is no whole number."""
        if number not in self._known:
            i = self.made[number]
            found = self._computed(i) if _is_whole(i.dtype) else EVERYTHING
            self._known[number] = found & _all_of(i.dtype) if _fits(found, i.dtype) else _all_of(i.dtype)
        return self._known[number]

    def _computed(self, i: LoopInstruction) -> Interval:
        match i:
            case Number():
                return Interval(i.value, i.value)
            case Index():
                return bounds(i.expr, self.ranges)
            case Convert() if _is_whole(self.made[i.arguments[0]].dtype):
                return self.of(i.arguments[0])
            case Apply():
                return self._applied(i)
        return EVERYTHING

    def _applied(self, i: Apply) -> Interval:
        given = [self.of(argument) for argument in i.arguments]
        match i.operation, given:
            case "maximum", [a, b]:
                return Interval(max(a.low, b.low), max(a.high, b.high))
            case "minimum", [a, b]:
                return Interval(min(a.low, b.low), min(a.high, b.high))
            case "add", [a, b]:
                return a + b
            case "sub", [a, b]:
                return Interval(a.low - b.high, a.high - b.low)
            case "mul", [a, b]:
                return a * b
            case "neg", [a]:
                return Interval(-a.high, -a.low)
            case "where", [_, a, b]:
                decided = self._decided(self.made[i.arguments[0]])
                return Interval(min(a.low, b.low), max(a.high, b.high)) if decided is None else a if decided else b
        return EVERYTHING

    def _decided(self, condition: LoopInstruction) -> bool | None:
        """What a comparison always says."""
        if not isinstance(condition, Apply) or condition.operation not in _COMPARE:
            return None
        a, b = (self.of(argument) for argument in condition.arguments)
        if not all(_is_whole(self.made[argument].dtype) for argument in condition.arguments):
            return None
        compare = _COMPARE[condition.operation]
        answers = {compare(x, y) for x in (a.low, a.high) for y in (b.low, b.high)}
        return answers.pop() if len(answers) == 1 else None


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def _all_of(dtype: torch.dtype) -> Interval:
    if dtype is torch.bool:
        return TRUTH
    if not _is_whole(dtype):
        return EVERYTHING
    limits = torch.iinfo(dtype)
    return Interval(limits.min, limits.max)


def _fits(found: Interval, dtype: torch.dtype) -> bool:
    whole = _all_of(dtype)
    return whole.low <= found.low and found.high <= whole.high
