"""Objects that lead back to themselves: functions that call each other, tuples in lists of their own, containers grown by themselves."""

from __future__ import annotations

import collections
import functools

import pytest
import torch
from harness import program

import stoker


class Row(list):
    pass


class Told(list):
    """Shows other elements than it holds."""

    def __iter__(self):
        return iter([7, 8])


class Table(dict):
    pass


class Defaults(collections.defaultdict):
    pass


class Bag(set):
    pass


class Line(collections.deque):
    pass


def of(made):
    """Which functions, tuples and lists in a structure are the same ones, with cells and defaults looked into."""
    seen: dict[int, int] = {}
    order: list[object] = []

    def walk(value):
        if id(value) in seen:
            order.append(seen[id(value)])
            return
        seen[id(value)] = len(seen)
        order.append(type(value))
        parts: list = []
        if isinstance(value, (list, tuple)):
            parts = list(value)
        elif isinstance(value, functools.partial):
            parts = [value.func, value.args]
        elif callable(value):
            parts = [cell.cell_contents for cell in value.__closure__ or ()]
            parts += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *value.__dict__.values()]
        for part in parts:
            if not isinstance(part, (torch.Tensor, int)):
                walk(part)

    walk(made)
    return order


def recursive(x):
    def again():
        return again

    return x + 1, again


def mutual(x):
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    return even, odd, even(3), x * 2


def in_a_tuple(x):
    kept: list = []
    pair = (kept, x + 1)
    kept.append(pair)
    return pair


def in_its_default(x):
    kept: list = []

    def given(y=kept, *, z=kept):
        return y, z

    kept.append(given)
    kept.append(functools.partial(given, kept))
    return given, kept


def in_an_attribute(x):
    def own():
        return x

    own.me = own
    own.us = [own, (own,)]
    return own


def in_a_cell_of_another(x):
    kept: list = []

    def first():
        return kept

    def second():
        return first, second

    kept.extend([first, second, (first, second)])
    return second


PROGRAMS = [recursive, mutual, in_a_tuple, in_its_default, in_an_attribute, in_a_cell_of_another]


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("broken", [False, True])
def test_identity(function, broken):
    """The same objects are the same, whether a call returns them or a break hands them on."""

    @stoker.disable
    def stop(value):
        return value

    def behind_a_break(x):
        made = function(x)
        stop(None)
        return made

    compiled = stoker.compile(behind_a_break if broken else function, backend="eager", fullgraph=not broken)
    assert of(compiled(torch.ones(2))) == of(function(torch.ones(2)))


GROWN = {
    "list": [Row([1, 2]), [2], (3,), 2],
    "dict": [Table(a=1), {"b": 2}, [("c", 3)]],
    "defaultdict": [Defaults(list, a=1), {"b": 2}],
    "set": [Bag([1, 2]), {2}, frozenset([2, 3])],
    "deque": [Line([1, 2]), [3], 2],
}
OPERATORS = {
    "list": ["+=", "*="],
    "dict": ["|="],
    "defaultdict": ["|="],
    "set": ["|=", "&=", "-=", "^="],
    "deque": ["+=", "*="],
}
CASES = [
    (first, text, other)
    for kind, (first, *others) in GROWN.items()
    for text in OPERATORS[kind]
    for other in [*others, None]
    if (text == "*=") == isinstance(other, int)
]


@pytest.mark.parametrize(("first", "text", "other"), CASES)
@pytest.mark.parametrize("given", [False, True])
def test_in_place_gives_the_object_itself(first, text, other, given):
    """`made op= other` of a subclass of a container, made inside or given; without another, it is given itself."""
    source = f"""
def function(x, made, other):
    made = made if given else copy(made)
    before = made
    made {text} made if other is None else other
    return made, before is made, type(made), x + len(made)
"""
    scope = {"given": given, "copy": type(first).copy if not isinstance(first, Row) else Row}
    exec(source, scope)
    function = scope["function"]
    fresh = lambda: type(first)(first) if not isinstance(first, Defaults) else Defaults(list, first)  # noqa: E731
    expected, found = fresh(), fresh()
    expect = function(torch.ones(2), expected, other)
    have = stoker.compile(function, backend="eager")(torch.ones(2), found, other)
    assert have[0] == expect[0] and have[1:3] == expect[1:3] and torch.equal(have[3], expect[3])
    assert type(have[0]) is type(expect[0]) and found == expected
    assert (have[0] is found) is (expect[0] is expected)


@program("containers grown by themselves")
def test_grown_by_itself(x):
    row, told, plain, line = Row([1, 2]), Told([1, 2]), [1, 2], collections.deque([1, 2])
    row.extend(row)
    told.extend(told)
    plain.extend(plain)
    plain[1:1] = plain
    line.extend(line)
    line.extendleft(line)
    table, bag = Table(a=1), Bag([1, 2])
    table.update(table)
    bag.update(bag)
    return row, list.copy(told), plain, list(line), table, bag, x + len(row)


def test_a_list_given_twice():
    def function(one, other):
        one.extend(other)
        one.append(other[2] + 1)
        return other

    tensors = [torch.ones(2), torch.zeros(2)]
    row = Row(tensors)
    assert stoker.compile(function, backend="eager", fullgraph=True)(row, row) is row
    assert len(row) == 5 and row[2] is row[0] and row[3] is row[1] and torch.equal(row[4], tensors[0] + 1)
