"""The order in which groups run.

Any order that respects dependencies is right. The original order is near what eager does, and keeps memory low: a group runs at
the place of its last member, once all it depends on has run.
"""

from __future__ import annotations

from stoker.loop.node import Extern
from stoker.schedule.draft import Draft
from stoker.schedule.score import Groups


def order(groups: Groups) -> list[Draft | Extern]:
    """Groups, each after those it depends on; among those ready, the one that stands first in the program."""
    done: list[Draft | Extern] = []
    finished: set[int] = set()

    def visit(number: int) -> None:
        stack = [number]
        while stack:
            top = stack[-1]
            if top in finished:
                stack.pop()
                continue
            waiting = [n for n in _bits(groups.before[top]) if n not in finished]
            if waiting:
                stack.extend(sorted(waiting, reverse=True))
                continue
            finished.add(top)
            done.append(groups.drafts[top])
            stack.pop()

    for number in sorted(groups.drafts, key=lambda n: _last_position(groups, n)):
        visit(number)
    return done


def _last_position(groups: Groups, number: int) -> int:
    item = groups.drafts[number]
    return max(item.positions) if isinstance(item, Draft) else number


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
