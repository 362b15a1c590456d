"""Unpacking and starred arguments: how much is taken of an iterator, and what is refused, in CPython's words."""

from __future__ import annotations

import itertools

import pytest
import torch
from harness import ONE, Program, check, program


def counted(told):
    for number in itertools.count():
        told.append(number)
        yield number


class Endless:
    def __iter__(self):
        return itertools.count(5)


@program("an endless iterator is too much", default=True)
def test_endless(x):
    found = []
    for endless in (itertools.count(), Endless(), itertools.cycle("ab"), itertools.repeat(3)):
        try:
            a, b = endless
        except ValueError as error:
            found.append(str(error))
    return x * 2, found


@program("an iterator is left where unpacking left it", inputs=lambda: (torch.ones(2), iter(range(9))))
def test_left(x, it):
    told = []
    try:
        a, b = counted(told)
    except ValueError:
        pass
    try:
        c, d = it
    except ValueError as error:
        return x * 2, told, str(error)


def takes(*args, **kwargs):
    return len(args), sorted(kwargs)


def _two_of(value):
    a, b = value
    return a, b


def _ends_of(value):
    a, *b, c = value
    return a, b, c


TRIED = [
    lambda x: _two_of([1]),
    lambda x: _two_of([1, 2, 3]),
    lambda x: _two_of(5),
    lambda x: _two_of(None),
    lambda x: _two_of("ab"),
    lambda x: _two_of({"k": 1, "l": 2}),
    lambda x: _two_of(x),
    lambda x: _two_of(x[:1]),
    lambda x: _ends_of([1]),
    lambda x: _ends_of(5),
    lambda x: _ends_of("abcd"),
    lambda x: takes(*5),
    lambda x: takes(1, *None),
    lambda x: takes(**5),
    lambda x: takes(a=1, **[1]),
    lambda x: takes(a=1, **{"a": 2}),
    lambda x: takes(*"ab", *range(2), **{"k": 1}),
    lambda x: takes(*map(str, [1, 2])),
    lambda x: [*5],
    lambda x: {**5},
    lambda x: {*5},
    lambda x: (*x, 1)[2],
]


@pytest.mark.parametrize("number", range(len(TRIED)))
def test_words(number: int) -> None:
    def tried(x):
        try:
            return x * 2, TRIED[number](x)
        except (TypeError, ValueError) as error:
            return x * 2, type(error), str(error)

    check(Program("", tried, ONE, lambda: (torch.ones(2),), False, (), True, False))
