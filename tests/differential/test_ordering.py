"""heapq and bisect."""

from __future__ import annotations

import bisect
import heapq

import torch
from harness import BREAK, program

NUMBERS = [5, 1, 8, 3, 9, 2, 7, 7, 0, 4, 6]


class Job:
    def __init__(self, rank, work):
        self.rank, self.work = rank, work

    def __lt__(self, other):
        return self.rank < other.rank


@program("heappush, heappop, heapify and their kin", default=True)
def test_heap(x):
    pushed, made, stages = [], list(NUMBERS), []
    for number in NUMBERS:
        heapq.heappush(pushed, number)
        stages.append(list(pushed))
    heapq.heapify(made)
    replaced = heapq.heapreplace(made, 3), heapq.heappushpop(made, -1), heapq.heappushpop(made, 5)
    popped = [heapq.heappop(pushed) for _ in NUMBERS]
    return x * popped[0], stages, made, replaced, popped


@program("a queue of objects, ordered by rank")
def test_objects(x):
    queue = [Job(3, x), Job(1, x * 2), Job(2, x * 3)]
    heapq.heapify(queue)
    first = heapq.heappop(queue)
    heapq.heappush(queue, Job(0, x * 4))
    return first.work, [job.rank for job in queue], heapq.heappop(queue).work


@program("nlargest, nsmallest and merge")
def test_selections(x):
    return (
        x,
        heapq.nlargest(3, NUMBERS),
        heapq.nsmallest(3, NUMBERS, key=lambda n: -n),
        list(heapq.merge([1, 4], [2, 3], [])),
    )


@program("a heap from outside", inputs=lambda: (torch.ones(2), [1, 3, 2]))
def test_outside(x, heap):
    heapq.heappush(heap, 0)
    return x * heapq.heappop(heap), heapq.heappop(heap)


@program("an empty heap")
def test_empty(x):
    try:
        heapq.heappop([])
    except IndexError as error:
        return x * 2, str(error)


@program("a beam ordered by scores that only data tells", BREAK)
def test_by_data(x):
    heap = []
    for row in x:
        heapq.heappush(heap, (row.sum().item(), row.shape[0]))
    return x * 2, heapq.heappop(heap)


@program("bisect and insort")
def test_bisect(x):
    found, pairs = [1, 3, 3, 5], [("a", 1), ("b", 4)]
    bisect.insort(found, 3)
    bisect.insort_left(found, 4)
    bisect.insort(pairs, ("c", 2), key=lambda pair: pair[1])
    try:
        bisect.bisect(found, 1, -1)
    except ValueError as error:
        refused = str(error)
    return (
        x * bisect.bisect_left(found, 3),
        bisect.bisect(found, 3),
        bisect.bisect_right(found, 3, 1, 3),
        found,
        pairs,
        refused,
    )


@program("intervals of sizes", inputs=lambda: (torch.ones(torch.randint(2, 9, ()).item()),), steady=False)
def test_sizes(x):
    return x * bisect.bisect([1, 4, 8], x.shape[0])
