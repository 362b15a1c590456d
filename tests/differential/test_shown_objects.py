"""Text of objects that captured code makes: what their classes say, what their bases hold, and what a format asks of them."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing

import torch
from harness import BREAK, program
from torch import nn


@dataclasses.dataclass
class Record:
    a: typing.Any
    b: typing.Any = None


class Pair(typing.NamedTuple):
    x: typing.Any
    y: typing.Any


class Named(typing.NamedTuple):
    x: typing.Any

    def __repr__(self):
        return f"Named<{self.x}>"


class Held(collections.namedtuple("Held", "a b")):
    def __repr__(self):
        return super().__repr__() if self.a else "nothing"


class Color(enum.Enum):
    RED = 1


class Shown:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Shown({self.n!r})"


class Formatted(Shown):
    def __str__(self):
        return f"<{self.n}>"

    def __format__(self, specification):
        return f"{self.n:{specification}}!"

    def __getitem__(self, key):
        return key * 2


class Items(list):
    pass


class Table(dict):
    pass


class Bunch(set):
    pass


class Frozen(frozenset):
    pass


class Count(int):
    pass


@program("text of objects that are made inside, in containers")
def test_text(x):
    things = [Record(1, "a"), Pair(1, [2.5]), Color.RED, Shown(3), Formatted(4), Record(Record(1), [Formatted(2)])]
    things += [[Shown(1), Record(2)], {"k": Shown(2), Pair: 3}, (Formatted(1),), collections.OrderedDict(a=Shown(1))]
    things += [collections.deque([Shown(1)]), collections.Counter("aab"), collections.defaultdict(list, a=[Shown(2)])]
    formats = f"{Formatted(3):>4}", f"{Record(1)!r} {Pair(1, 2)!s}", "%s %r" % (Formatted(1), Shown(2)), "{:>5}".format(Formatted(1))  # fmt: skip
    return x * 2, [repr(thing) for thing in things], [str(thing) for thing in things], formats


@program("text of objects that hold sizes")
def test_text_of_sizes(x):
    record = Record(x.shape[0], Pair(x.shape[1], [0.5]))
    return x * 2, repr(record), str([record]), f"{record}", f"{Named([x.shape[1]])}"


@program("text of named tuples, by their classes")
def test_named_tuples(x):
    named = [Held([], [1]), Held([1], [2]), Named([1]), Pair([1], Named(2)), {"a": Pair(1, Named([2]))}]
    return x * 2, [repr(thing) for thing in named], str(named), "%s %s" % Pair(1, [2]), "%s" % (Pair(1, 2),)


@program("text of subclasses of built-in types")
def test_subclasses(x):
    within = Items([1])
    within.append(within)
    table = Table(k=1)
    table["t"] = table
    things = [
        Items([1, Pair(1, [2])]),
        Table(a=[1]),
        Bunch([1]),
        Bunch(),
        Count(3),
        within,
        table,
        Frozen([2]),
        Frozen(),
    ]
    return x * 2, [repr(thing) for thing in things], [str(thing) for thing in things]


@program("text of a set of a class, from outside", inputs=lambda: (Bunch([1]), Frozen("a"), Bunch(), torch.randn(3, 4)))
def test_sets_outside(bunch, frozen, empty, x):
    return x * 2, repr(bunch), str(frozen), f"{empty}", repr([bunch, frozen])


@program("attributes and items that a format asks for")
def test_asked(x):
    record, shown = Record({"k": [3]}), Formatted("ab")
    texts = "{0.a[k]} {1.n} {1[xy]} {d.n:>3}".format(record, shown, d=shown), "{r.a}".format_map({"r": record})
    try:
        "{0.missing}".format(shown)
    except AttributeError as error:
        return x * 2, texts, str(error)


class Odd:
    value, m = 3, 4

    def __repr__(self):
        return "odd"


@program("a format that asks for attributes of any name")
def test_any_name(x):
    return x * 2, "{0.value} {0.m} {0!r}".format(Odd())


@program("text of a module", inputs=lambda: (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)))
def test_module(module, x):
    return module(x), repr(module), str(module[0]), module[0].extra_repr()


@program("text with an address in it", BREAK, steady=False)
def test_address(x):
    return x * 2, repr(object()).startswith("<object object at 0x")


@program("objects that are printed, before a break", BREAK)
def test_printed(x):
    print(Record(1), Shown(2), [Formatted(3)], Pair(1, [2.0]))
    if x.sum() > 0:
        print(Pair([1], Named(x.shape)))
    return x * 2
