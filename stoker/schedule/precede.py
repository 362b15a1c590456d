"""Which groups must run before which, while groups are joined.

Both directions are kept, each as bits, so that the question that is asked for every pair, whether a third must run between two, is one
operation. Joining two groups changes only what followed or preceded one of them alone.

Requirements, held by tests/unit/schedule/test_precede.py:
  1. The relation stays closed: what runs before a runs before all that runs after a.
  2. Groups that were joined are no longer seen. (Their bits stay where they are: `_there` covers them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_


class Precedence:
    """A strict order of groups, by number."""

    def __init__(self, earlier: Sequence[Iterable[int]]) -> None:
        """Groups 0, 1, ..., each after some with smaller numbers."""
        self._before: dict[int, int] = {}
        self._after: dict[int, int] = dict.fromkeys(range(len(earlier)), 0)
        self._there = (1 << len(earlier)) - 1
        for group, others in enumerate(earlier):
            self._before[group] = reduce(or_, (self._before[other] | 1 << other for other in others), 0)
        for group in reversed(range(len(earlier))):
            for other in earlier[group]:
                self._after[other] |= self._after[group] | 1 << group

    def precedes(self, a: int, b: int) -> bool:
        return bool(self._before[b] >> a & 1)

    def between(self, a: int, b: int) -> bool:
        """Must some third group run after a and before b?"""
        return bool(self._after[a] & self._before[b] & self._there)

    def related(self, a: int, others: Iterable[int]) -> bool:
        """Must a run before or after one of the others?"""
        return bool((self._before[a] | self._after[a]) & reduce(or_, (1 << other for other in others), 0))

    def join(self, a: int, b: int) -> None:
        """Group a takes in group b."""
        a_before, b_before = self._before[a], self._before.pop(b)
        a_after, b_after = self._after[a], self._after.pop(b)
        self._there ^= 1 << b
        others, itself = self._there ^ 1 << a, 1 << a
        before, after = (a_before | b_before) & others, (a_after | b_after) & others
        self._before[a], self._after[a] = before, after
        _spread(self._before, a_after & ~b_after & others, before & ~a_before)
        _spread(self._before, b_after & ~a_after & others, before & ~b_before | itself)
        _spread(self._after, a_before & ~b_before & others, after & ~a_after)
        _spread(self._after, b_before & ~a_before & others, after & ~b_after | itself)


def _spread(relation: dict[int, int], members: int, more: int) -> None:
    """Add to what is related to each member; often there is nothing to add, as where a chain of operators is joined."""
    if not members or not more:
        return
    text = f"{members:b}"
    last, place = len(text) - 1, text.find("1")
    while place >= 0:
        relation[last - place] |= more
        place = text.find("1", place + 1)
