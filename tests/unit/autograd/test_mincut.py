"""The cut is minimal: against every cut of small random graphs, and fast on a large one."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from stoker.autograd.mincut import UNLIMITED, Network, minimum_cut

Edges = list[tuple[int, int, int]]


def network_of(count: int, edges: Edges) -> Network:
    network = Network()
    for _ in range(count):
        network.vertex()
    for edge in edges:
        network.edge(*edge)
    return network


def weight(edges: Edges, side: tuple[bool, ...] | list[bool]) -> int:
    return sum(c for a, b, c in edges if side[a] and not side[b])


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_is_cheaper(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(2, 8)
    edges = [(a, b, draw.randint(0, 9)) for a in range(count) for b in range(count) if a != b and draw.random() < 0.5]
    total, reached = minimum_cut(network_of(count, edges), 0, count - 1)
    assert reached[0] and not reached[count - 1]
    assert weight(edges, reached) == total
    for inner in itertools.product([False, True], repeat=count - 2):
        assert total <= weight(edges, (True, *inner, False))


def test_thousands_of_vertices_are_fast() -> None:
    """A chain of 4,000 blocks with skip connections, as a deep model has."""
    count = 8000
    edges = [(i, i + 1, 1000 + i % 97 if i % 2 else UNLIMITED) for i in range(count - 1)]
    edges += [(i, i + 7, UNLIMITED) for i in range(0, count - 8, 14)]
    network = network_of(count, edges)
    start = time.perf_counter()
    total, _ = minimum_cut(network, 0, count - 1)
    assert total < UNLIMITED
    assert time.perf_counter() - start < 0.3
