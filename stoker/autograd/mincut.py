"""Minimum cut of a directed graph with integer capacities, by Dinic's algorithm (Dinitz 1970).

In:  edges (from, to, capacity) between vertices 0..n-1, a source and a sink.
Out: the vertices that the source still reaches when the cheapest set of edges has been cut.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = 1 << 60
"""A capacity that no cut should cross. A cut that must cross one has at least this weight."""


class Network:
    """Edges are stored in pairs: edge e and its reverse e ^ 1."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.room: list[int] = []
        self.leaving: list[list[int]] = []

    def vertex(self) -> int:
        self.leaving.append([])
        return len(self.leaving) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        self.leaving[tail].append(len(self.heads))
        self.heads.append(head)
        self.room.append(capacity)
        self.leaving[head].append(len(self.heads))
        self.heads.append(tail)
        self.room.append(0)


def minimum_cut(network: Network, source: int, sink: int) -> tuple[int, list[bool]]:
    """The weight of the cheapest cut, and for each vertex whether it is on the source's side. Uses up the network's
    room."""
    total = 0
    while (levels := _levels(network, source))[sink] >= 0:
        total += _saturate(network, source, sink, levels)
    return total, [level >= 0 for level in levels]


def _levels(network: Network, source: int) -> list[int]:
    """How many edges with room it takes to each vertex; -1 where none lead to it."""
    levels = [-1] * len(network.leaving)
    levels[source] = 0
    queue = deque([source])
    heads, room, leaving = network.heads, network.room, network.leaving
    while queue:
        vertex = queue.popleft()
        for edge in leaving[vertex]:
            if room[edge] and levels[heads[edge]] < 0:
                levels[heads[edge]] = levels[vertex] + 1
                queue.append(heads[edge])
    return levels


def _saturate(network: Network, source: int, sink: int, levels: list[int]) -> int:
    """Push flow along shortest paths until none is left. Paths are kept on a stack: graphs are deeper than Python's."""
    heads, room, leaving = network.heads, network.room, network.leaving
    following = [0] * len(leaving)
    path: list[int] = []
    vertex, total = source, 0
    while True:
        if vertex == sink:
            amount = min(room[e] for e in path)
            total += amount
            for edge in path:
                room[edge] -= amount
                room[edge ^ 1] += amount
            tight = next(i for i, e in enumerate(path) if not room[e])
            vertex = heads[path[tight] ^ 1]
            del path[tight:]
            continue
        edges = leaving[vertex]
        while following[vertex] < len(edges):
            edge = edges[following[vertex]]
            if room[edge] and levels[heads[edge]] == levels[vertex] + 1:
                break
            following[vertex] += 1
        else:
            if not path:
                return total
            vertex = heads[path.pop() ^ 1]
            following[vertex] += 1
            continue
        path.append(edge)
        vertex = heads[edge]
