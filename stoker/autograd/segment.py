"""Which expensive operators the backward may run again, in steps from few to all.

In:  the forward's nodes in order, and the expensive ones among them.
Out: sets of nodes that must not run again, each leaving more of the rest free.

A program is cut where few bytes pass from what was computed to what comes (between the layers of a transformer, the
residual stream alone). What passes there is not run again, so that a value is computed again from the start of its own
segment, and no more than one segment's values are alive for it at a time. The first segments are freed first: they are
the last that the backward comes to, when all others are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.fx import Node

from stoker.graph.walk import is_view, runs_once, size_bytes

_TRIED = {0.25: (4, 8, 16), 0.5: (4, 8, 16), 0.75: (4, 8, 16), 1.0: (2, 3, 4, 6, 8, 12, 16, 24, 32)}
"""How much of the program is freed, and in how many segments it is cut then."""


def relaxed(nodes: Sequence[Node], expensive: Sequence[Node]) -> list[frozenset[Node]]:
    """Sets of nodes that must not run again, those with most expensive operators first."""
    costly = frozenset(expensive)
    sets = [*_segments(nodes, costly), *_spread(expensive), frozenset()]
    return sorted(sets, key=lambda once: -len(once & costly))


def _spread(expensive: Sequence[Node]) -> Iterator[frozenset[Node]]:
    """Every second, third, ... expensive operator: for programs that are nowhere narrow."""
    for distance in (2, 3, 4, 6, 8, 16, 32, 64, 128):
        yield frozenset(expensive[distance - 1 :: distance])


def _segments(nodes: Sequence[Node], costly: frozenset[Node]) -> Iterator[frozenset[Node]]:
    nodes = [n for n in nodes if n.meta["phase"] == "forward"]
    crossing = _crossing(nodes)
    bytes_at = [sum(size_bytes(n) for n in passing) for passing in crossing]
    work = [0]
    for node in nodes:
        work.append(work[-1] + (node in costly))
    for share, counts in _TRIED.items():
        for count in counts:
            cuts = _cuts(bytes_at, work, count, share)
            if cuts:
                fixed = {n for cut in cuts for n in crossing[cut]}
                yield frozenset(fixed | {n for n in nodes[cuts[-1] + 1 :] if n in costly})


def _crossing(nodes: Sequence[Node]) -> list[list[Node]]:
    """For each node, the values that it and those before it made and that later ones read. A view passes as what it
    views; what is kept in any case is left out."""
    place = {n: i for i, n in enumerate(nodes)}
    last: dict[Node, int] = {}
    for node in reversed(nodes):
        reads = [place[u] for u in node.users if u in place]
        if is_view(node) or isinstance(node.meta["val"], (list, tuple)):
            reads += [last[u] for u in node.users if u in last]
        last[node] = max([last.get(node, -1), *reads])
        if is_view(node):
            base = node.args[0]
            last[base] = max(last.get(base, -1), last[node])  # type: ignore[index, arg-type]  # bases are nodes
    passing: list[list[Node]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        if node.op == "placeholder" or runs_once(node) or is_view(node) or isinstance(node.meta["val"], (list, tuple)):
            continue
        for between in range(index, last[node]):
            passing[between].append(node)
    return passing


def _cuts(bytes_at: Sequence[int], work: Sequence[int], count: int, share: float) -> list[int]:
    """Where the first `share` of `count` segments of about equal work end: each end is the narrowest place near."""
    total = work[-1]
    ends: list[int] = []
    for number in range(1, count + 1):
        if number > round(count * share):
            break
        low, high = ((number + d) * total / count for d in (-0.5, 0.5))
        near = [i for i in range(len(bytes_at)) if low < work[i + 1] <= high and (not ends or i > ends[-1])]
        if near:
            ends.append(min(near, key=bytes_at.__getitem__))
    return ends
