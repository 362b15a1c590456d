"""The order of groups against one that is computed anew each time."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from stoker.schedule.precede import Precedence


class Slowly:
    """The same by edges between groups."""

    def __init__(self) -> None:
        self.edges: dict[int, set[int]] = {}

    def precedes(self, a: int, b: int) -> bool:
        seen, waiting = set[int](), [b]
        while waiting:
            for earlier in self.edges[waiting.pop()] - seen:
                seen.add(earlier)
                waiting.append(earlier)
        return a in seen

    def between(self, a: int, b: int) -> bool:
        return any(self.precedes(a, c) and self.precedes(c, b) for c in self.edges if c not in (a, b))

    def join(self, a: int, b: int) -> None:
        self.edges[a] |= self.edges.pop(b)
        for earlier in self.edges.values():
            if b in earlier:
                earlier.remove(b)
                earlier.add(a)
        self.edges[a] -= {a, b}


@pytest.mark.parametrize("seed", range(40))
def test_joined_groups(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 14)
    earlier = [[other for other in range(group) if rng.random() < rng.choice((0.1, 0.3))] for group in range(count)]
    order, slowly = Precedence(earlier), Slowly()
    slowly.edges = {group: set(others) for group, others in enumerate(earlier)}
    while True:
        left = list(slowly.edges)
        for a, b in permutations(left, 2):
            assert order.precedes(a, b) == slowly.precedes(a, b), (a, b)
            assert order.between(a, b) == slowly.between(a, b), (a, b)
        possible = [(a, b) for a, b in permutations(left, 2) if not order.precedes(b, a) and not order.between(a, b)]
        if not possible:
            break
        a, b = rng.choice(possible)
        order.join(a, b)
        slowly.join(a, b)
