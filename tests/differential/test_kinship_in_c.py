"""Whose method comes first, and what `super` takes, is told by the bases of a class: no registry and no `__subclasscheck__` is asked."""

from __future__ import annotations

import abc
import operator

import pytest
import torch

import stoker

METHODS = ("add", "radd", "mod", "rmod", "eq", "ne", "lt", "le", "gt", "ge")
OPERATORS = (operator.add, operator.mod, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
log: list[str] = []


def declining(owner, method):
    def decline(self, other):
        log.append(f"{owner}.{method}")
        return NotImplemented

    return decline


def body(owner):
    return {f"__{method}__": declining(owner, method) for method in METHODS}


class Generous(type):
    def __subclasscheck__(cls, other):
        log.append("asked")
        return True


Abstract = abc.ABCMeta("Abstract", (), body("Abstract"))
Registered = type("Registered", (), body("Registered"))
Abstract.register(Registered)
Derived = abc.ABCMeta("Derived", (Abstract,), body("Derived"))
Open = Generous("Open", (), body("Open"))
PAIRS = [(Abstract, Registered), (Registered, Abstract), (Abstract, Derived), (Open, Registered), (Registered, Open)]


def same(function):
    """What a function gives, and whom it asked, eagerly and compiled."""
    log.clear()
    expected, asked = function(torch.ones(2)), list(log)
    log.clear()
    found = stoker.compile(function)(torch.ones(2))
    assert (found[1], log) == (expected[1], asked)
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("operation", OPERATORS)
def test_order_of_methods(operation, left, right):
    def function(x):
        try:
            return x + 1, operation(left(), right())
        except TypeError as error:
            return x + 1, str(error)

    same(function)


@pytest.mark.parametrize(("after", "cls"), [(Abstract, Registered), (Open, Registered), (Abstract, Derived)])
def test_super(after, cls):
    def function(x):
        try:
            return x + 1, super(after, cls()).__str__ is None
        except TypeError as error:
            return x + 1, str(error)

    same(function)


class Maker(abc.ABC):
    def __new__(cls, other):
        return other()

    def __init__(self, other):
        log.append(type(self).__name__)


class Made(Maker):
    def __new__(cls):
        return object.__new__(cls)


Maker.register(Registered)


@pytest.mark.parametrize("other", [Registered, dict, Abstract])
def test_construction(other):
    """`__init__` runs on an object of the class, not on one that is registered to be like it."""

    def function(x):
        return x + 1, type(Maker(other)).__name__

    same(function)


def test_construction_of_a_derived_class():
    def function(x):
        return x + 1, type(Maker(lambda: object.__new__(Made))).__name__

    same(function)
