"""`left += tensor` where the class of `left` says what that is, alone or besides `+`."""

from __future__ import annotations

import torch
from harness import program


class Log:
    """Has no `+`."""

    def __init__(self) -> None:
        self.kept: list = []

    def __iadd__(self, other):
        self.kept.append(other)
        return self

    def __imatmul__(self, other):
        self.kept.insert(0, other)
        return self


class Level(int):
    def __iadd__(self, other):
        return other * 10

    def __imul__(self, other):
        return NotImplemented


class Rate(float):
    def __isub__(self, other):
        return (self, other)


class Steps(list):
    def __iadd__(self, other):
        self.append(other)
        return self


class Both:
    def __add__(self, other):
        return other + 1

    def __iadd__(self, other):
        return other + 2


@program("an in-place operator of a class, with a tensor", default=True)
def test_of_a_class(x):
    log = Log()
    log += x.sum()
    log += x
    log @= x + 1
    return log.kept


@program(
    "an in-place operator of a class that changes an object from outside",
    default=True,
    inputs=lambda: (torch.ones(2), Log()),
)
def test_from_outside(x, log):
    log += x * 2
    return len(log.kept), log.kept[-1] + 1


@program("an in-place operator of a number's class, with a tensor", default=True)
def test_of_numbers(x):
    level, other, rate = Level(3), Level(4), Rate(0.5)
    level += x
    other *= x
    rate -= x
    return level, other, rate[1], float(rate[0])


@program("an in-place operator of a list's class, with a tensor", default=True)
def test_of_a_list(x):
    steps = Steps([x])
    steps += x * 2
    return steps[1], len(steps)


@program("an in-place operator besides a plain one, with a tensor", default=True)
def test_besides_a_plain_one(x):
    both = Both()
    plain = both + x
    both += x
    return plain, both


@program("a tensor in place, with an object of a class that has an in-place operator", default=True)
def test_on_the_right(x):
    y = x * 1
    y += Level(2)
    return y
