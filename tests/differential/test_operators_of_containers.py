"""Operators of containers and text, on objects from outside and made inside: in place, by views, by subclasses, in CPython's words."""

from __future__ import annotations

import collections
from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import torch
from harness import program

import stoker


class Bag(set):
    pass


class Showing(set):
    """Shows other elements than it holds."""

    def __iter__(self):
        return iter([5])


class Text(str):
    pass


class Said(str):
    def __str__(self):
        return "said"


class Raw(bytes):
    pass


class Number(int):
    pass


class Share(float):
    pass


class Pair(tuple):
    pass


class Row(list):
    pass


class Plain:
    def __repr__(self):
        return "<plain>"


class Keyed:
    def __getitem__(self, key):
        return key + "!"


FORMATS = [
    "'ab' % Text('x')", "'a%s' % Text('x')", "'a%s' % Plain()", "'ab' % Plain()", "'%(k)s' % Keyed()", "'ab' % Keyed()",
    "'%(k)s' % OrderedDict(k=1)", "'ab' % Row([1])", "'a%s' % Row([1])", "'%d' % Number(3)", "'%s %s' % Pair((1, 2))",
    "'%s' % Pair((1, 2))", "b'%s' % Raw(b'x')", "b'ab' % Raw(b'x')", "b'%d' % Number(3)", "Text('a%s') % 1", "Text('a%s') % (1,)",
    "Text('%s%s') % (1, Plain())", "Text('%(a)s') % {'a': 1}", "Text('ab') % 1", "Said('%s') % 2", "'%s' % Said('q')",
    "'%r' % Said('q')", "'%x' % Plain()", "Text('%s') % Pair((1, 2))",
]  # fmt: skip


def outcome(function, *args):
    try:
        return str(function(torch.ones(1), *args))
    except Exception as error:  # whatever eager raises
        return type(error), str(error)


@pytest.mark.parametrize("text", FORMATS)
def test_formatted_by_percent(text):
    scope = dict(globals())
    exec(f"def function(x):\n    made = {text}\n    return made, type(made), x + 1", scope)
    assert outcome(stoker.compile(scope["function"], backend="eager")) == outcome(scope["function"])


@pytest.mark.parametrize("limit", [None, 3])
def test_a_deque_from_outside_is_repeated_in_place(limit):
    def function(x, line, times):
        before = line
        line *= times
        return line is before, line, line.maxlen, line * 2, x + len(line)

    compiled = stoker.compile(function, backend="eager", fullgraph=True)
    for times in (2, 3, 0, True):
        mine, eagers = deque([1, 2], limit), deque([1, 2], limit)
        assert str(compiled(torch.ones(1), mine, times)) == str(function(torch.ones(1), eagers, times))
        assert mine == eagers


def caught(function):
    try:
        return function()
    except (TypeError, IndexError) as error:
        return type(error).__name__, str(error)


def get(line, key):
    return line[key]


def put(line, key):
    line[key] = 0


def drop(line, key):
    del line[key]


@program("places of a deque that are not there")
def test_places_of_a_deque(x):
    line = deque([1, 2, 3])
    line[0], line[-1] = 7, 9
    del line[1]
    wrong = [
        caught(lambda key=key, act=act: act(line, key)) for key in (5, -3, slice(0, 1), "a") for act in (get, put, drop)
    ]
    return line, wrong, x + 1


@program("operators of views of an OrderedDict")
def test_views_of_ordered_dictionaries(x):
    ordered = OrderedDict(a=1, b=2)
    keys, items = ordered.keys(), ordered.items()
    return (
        keys & {"a": 9},
        keys & range(2),
        keys | {"c"},
        {"a"} - keys,
        keys ^ ["a"],
        items & {("a", 1)},
        keys >= {"a"},
        x + 1,
    )


@program("dictionaries joined where one class declines")
def test_joined_dictionaries(x):
    counted, plain = Counter("aab"), {"a": 9, "c": 1}
    made = [
        counted | plain,
        counted | OrderedDict(plain),
        counted | defaultdict(list, plain),
        plain | counted,
        counted | counted,
    ]
    return made, [type(part) for part in made], made[2].default_factory, x + 1


@program(
    "words of operators between objects of C",
    inputs=lambda: (torch.ones(1), deque([1]), defaultdict(list), OrderedDict()),
)
def test_words_of_operators(x, line, default, ordered):
    pairs = [(frozenset(), default), (line, 1), (ordered, 1), ({1}, line), (1, collections.ChainMap())]
    said = [caught(lambda a=a, b=b: a - b) for a, b in pairs] + [caught(lambda a=a, b=b: a < b) for a, b in pairs]
    return said, caught(lambda: [1] + line), x + 1


@program("sets changed by sets that show other elements")
def test_sets_by_what_they_hold(x):
    one, two, three, other = Showing([1, 2]), Showing([1, 2]), {1, 5}, Bag([1, 2])
    one.difference_update(one)
    two.update(two)
    three.difference_update(Showing([1]))
    other.difference_update(other)
    return [set.copy(part) for part in (one, two)], three, other, set(Showing([3])), x + 1


OPERANDS = [
    "[1]", "Row([1])", "(1,)", "Pair((1,))", "'a'", "Text('a')", "2", "Number(2)", "2.5", "Share(2.5)", "b'a'", "Raw(b'a')", "{1}",
    "Bag([1])", "frozenset([1])", "{'a': 1}", "deque([1])", "None", "1j",
]  # fmt: skip
SYMBOLS = ["+", "*", "-", "|", "==", "!=", "<", "in", "//", "**", "&"]


@pytest.mark.parametrize("left", OPERANDS)
def test_operators_between_all_of_them(left):
    """Each with each: C looks into subclasses of its own types, and names the classes as they are where it knows no answer."""
    pairs = [(symbol, right) for right in OPERANDS for symbol in SYMBOLS]
    calls = "".join(f"    found.append(caught(lambda: {left} {symbol} {right}))\n" for symbol, right in pairs)
    scope = dict(globals())
    exec(f"def function(x):\n    found = []\n{calls}    return x + 1, found", scope)
    function = scope["function"]
    have, expect = (call(torch.ones(1))[1] for call in (stoker.compile(function, backend="eager"), function))
    for pair, mine, eagers in zip(pairs, have, expect):
        assert (type(mine), str(mine)) == (type(eagers), str(eagers)), pair


@program("sets looked up in sets")
def test_sets_in_sets(x):
    return {1} in {1}, {1} in {frozenset([1]), 2}, Bag([1]) in frozenset([frozenset([1])]), x + 1


@pytest.mark.parametrize("kind", [set, Bag])
def test_a_set_changed_behind_its_iterator(kind):
    """An iterator that a break has kept is at its end when the set that it went over changes."""

    def function(x, bag):
        bag.update(iter([4]))
        shown = sorted(map(str, bag))
        bag.difference_update(iter([4]))
        return shown, bag, x + len(bag)

    mine, eagers = kind([1, 2]), kind([1, 2])
    assert str(stoker.compile(function, backend="eager")(torch.ones(1), mine)) == str(function(torch.ones(1), eagers))
    assert mine == eagers
