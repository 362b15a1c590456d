"""What is taken one by one: containers filled from iterators that raise or look, and containers that change while they are gone over."""

from __future__ import annotations

import collections
import contextlib
import itertools

import pytest
import torch
from harness import BREAK, ONE, Program, check, program


def raising(count):
    yield from range(count)
    raise ValueError("late")


def _slice(items, given):
    items[:] = given


FILLED = [
    (lambda: [9], lambda c: c.extend(raising(3))),
    (lambda: [9], lambda c: c.__iadd__(raising(2))),
    (lambda: [9, 8], lambda c: _slice(c, raising(2))),
    (lambda: {9}, lambda c: c.update(raising(3))),
    (lambda: {9}, lambda c: c.update([1], raising(2))),
    (lambda: {0, 9}, lambda c: c.difference_update(raising(2))),
    (lambda: {0, 9}, lambda c: c.intersection_update(raising(2))),
    (lambda: {0, 9}, lambda c: c.symmetric_difference_update(raising(2))),
    (lambda: {9: 9}, lambda c: c.update((key, key) for key in raising(2))),
    (lambda: {9: 9}, lambda c: c.update([(1, 2), (3,)])),
    (lambda: collections.deque([9]), lambda c: c.extend(raising(2))),
    (lambda: collections.deque([9], 2), lambda c: c.extendleft(raising(3))),
    (lambda: collections.Counter([9]), lambda c: c.update(raising(2))),
    (lambda: [3, 1, 2], lambda c: c.sort(key=lambda value: 1 / (value - 1))),
]


@pytest.mark.parametrize("number", range(len(FILLED)))
@pytest.mark.parametrize("outside", [False, True])
def test_filled_in_part(number: int, outside: bool) -> None:
    make, fill = FILLED[number]

    def made_inside(x):
        container = make()
        with contextlib.suppress(ValueError, ZeroDivisionError):
            fill(container)
        return x * 2, container

    def from_outside(x, container):
        with contextlib.suppress(ValueError, ZeroDivisionError):
            fill(container)
        return x * 2, len(container)

    program = from_outside if outside else made_inside
    inputs = (lambda: (torch.ones(2), make())) if outside else (lambda: (torch.ones(2),))
    check(Program("", program, ONE, inputs, False, (), True, False))


@program("a generator sees what was taken of it so far")
def test_seen(x):
    items, queue, seen = [1], collections.deque([1]), []

    def watching(container):
        for value in (10, 11):
            seen.append(list(container))
            yield value

    items.extend(watching(items))
    queue.extend(watching(queue))
    items.extend(items)
    queue.extend(queue)
    return x, items, queue, seen


@program("a list that is sorted is empty for its key")
def test_sorted(x):
    items, seen = [3, 1, 2], []
    items.sort(key=lambda value: seen.append(len(items)) or value)
    return x, items, seen


def _grown(container, add):
    for value in container:
        add(value)


def _emptied(container):
    for key in container:
        del container[key]


CHANGED = [
    lambda: _grown(made := {1: 1, 2: 2}, lambda key: made.update({key + 10: 1})),
    lambda: _grown(made := {1, 2}, lambda value: made.add(value + 10)),
    lambda: _grown(made := collections.deque([1, 2]), made.append),
    lambda: _grown(made := collections.deque([1, 2]), lambda value: made.rotate(1)),
    lambda: _grown(made := collections.deque([1, 2]), lambda value: made.reverse()),
    lambda: _grown(made := collections.deque([1]), lambda value: made.clear()),
    lambda: _emptied({1: 1, 2: 2}),
    lambda: _grown(made := [1, 2, 3], made.remove),
    lambda: _grown(made := {1: 1, 2: 2}, lambda key: made.__setitem__(key, 5)),
    lambda: _grown(made := {1, 2}, made.add),
    lambda: (made := {1: 1}, it := iter(made.items()), made.update({2: 2}), next(it)),
    lambda: (made := {1}, it := iter(made), made.add(2), next(it)),
    lambda: [type(iter(made)).__name__ for made in ({1}, collections.deque(), {1: 1}, {1: 1}.items(), frozenset())],
]


@pytest.mark.parametrize("number", range(len(CHANGED)))
def test_changed_under_way(number: int) -> None:
    def tried(x):
        try:
            return x * 2, CHANGED[number]()
        except RuntimeError as error:
            return x * 2, str(error)

    check(Program("", tried, ONE, lambda: (torch.ones(2),), False, (), True, False))


@program("a break in loops over a set, a deque and a dictionary", BREAK)
def test_breaks(x):
    total = 0
    for container in ({3, 1, 2}, collections.deque([4, 5]), {6: 7}, {8: 9}.items(), frozenset([1])):
        for value in container:
            print(x)
            total += value if isinstance(value, int) else value[1]
    return x * total


@program("a deque changes after a break in its loop", BREAK)
def test_break_and_change(x):
    queue = collections.deque([1, 2, 3], maxlen=3)
    try:
        for value in queue:
            print(x)
            if value == 2:
                queue.append(4)
    except RuntimeError as error:
        return x * 2, queue, str(error)


@program("consumers take what they need")
def test_laziness(x):
    told = []

    def counting(count):
        told.append("begin")
        for number in range(count):
            told.append(number)
            yield number
        told.append("end")

    found = (
        list(zip(counting(2), "abc")), any(v == 1 for v in counting(5)), all(v < 1 for v in counting(5)), 3 in counting(5),
        next((v for v in counting(5) if v > 1), None), list(itertools.takewhile(lambda v: v < 2, counting(5))),
        list(itertools.islice(counting(9), 1, 4, 2)), next(enumerate(counting(3))), next(itertools.chain(counting(1), counting(1))),
        dict(zip("ab", counting(5))), next(itertools.dropwhile(lambda v: v < 1, counting(4))), next(itertools.pairwise(counting(4))),
        next(itertools.compress(counting(3), [0, 1])), next(itertools.permutations(counting(2))), next(map(str, counting(2))),
    )  # fmt: skip
    return x, found, told
