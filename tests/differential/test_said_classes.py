"""Objects that say which class they are of, slices that are compared, and `super` where it has nothing to begin with."""

from __future__ import annotations

import collections.abc

import pytest
import torch

import stoker


class Proxy:
    """It stands for another object, as lazy objects and mocks do."""

    def __init__(self, target):
        self.target = target

    @property
    def __class__(self):
        return type(self.target)


class Numbered:
    __class__ = 413


class Shy:
    @property
    def __class__(self):
        raise AttributeError("hidden")


class Derived(Proxy):
    pass


class Refusing:
    def __eq__(self, other):
        raise LookupError("no comparison")


class First:
    def whole(self):
        return super().__str__ is None

    def without(self):
        del self
        return super()

    def captured(self):
        def read():
            return self

        del self
        return super(), read


OBJECTS = (Proxy([1]), Proxy("a"), Derived(3), Numbered(), Shy(), Proxy(Proxy(2)))
CLASSES = (list, str, int, Proxy, Derived, Numbered, Shy, collections.abc.Sized, collections.abc.Iterable)


def outcome(function, x):
    try:
        y, found = function(x)
    except Exception as error:
        return type(error), str(error)
    return y.tolist(), found


def same(function, *sizes):
    compiled = stoker.compile(function)
    for size in sizes or (2,):
        x = torch.ones(size)
        assert outcome(compiled, x) == outcome(function, x)


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_said_class(index, made):
    known = OBJECTS[index]
    kind, held = type(known), vars(known).get("target")

    def function(x):
        if made:
            value = kind(held) if held is not None else kind()
        else:
            value = known
        return x + 1, ([isinstance(value, cls) for cls in CLASSES], type(value) is kind)

    same(function)
    same(lambda x: (x + 1, (kind(held) if held is not None else kind()).__class__ if made else known.__class__))


@pytest.mark.parametrize("text", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("slice(n)", "slice(n)"), ("slice(n)", "slice(n + 1)"), ("slice(1, n)", "slice(1, 3)"), ("slice(1, 3)", "slice(1, n)"),
        ("slice(n, n, 2)", "slice(n, n, 3)"), ("slice(n)", "(None, n, None)"), ("slice(n)", "None"),
        ("slice(Refusing())", "slice(Refusing())"), ("slice(1, 2, Refusing())", "slice(1, 2, Refusing())"), ("(s := slice(Refusing()))", "s"),
    ],
)  # fmt: skip
def test_slices_compared(left, right, text):
    scope = {"Refusing": Refusing}
    exec(f"def function(x):\n    n = x.shape[0]\n    return x + 1, {left} {text} {right}", scope)
    same(scope["function"], 2, 3, 4)


def too_many(x):
    return x + 1, super(int, 1, 2)


def not_a_class(x):
    return x + 1, super(1, int) is None


@pytest.mark.parametrize(
    "function",
    [
        too_many,
        not_a_class,
        lambda x: (x + 1, First().whole()),
        lambda x: (x + 1, First().without()),
        lambda x: (x + 1, First().captured()),
    ],
)
def test_super_without_a_beginning(function):
    same(function)
