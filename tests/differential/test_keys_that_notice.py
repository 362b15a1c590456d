"""Keys whose own `__hash__` and `__eq__` change something, or read what the frame has changed: they are asked as often as eager asks them."""

from __future__ import annotations

import collections
import dataclasses
import gc

import torch
from harness import BREAK, program


class Counted:
    """Counts how often it is asked for its hash and compared; all of them collide."""

    def __init__(self, name="k"):
        self.name, self.hashed, self.compared = name, 0, 0

    def __hash__(self):
        self.hashed += 1
        return 42

    def __eq__(self, other):
        self.compared += 1
        return isinstance(other, Counted) and self.name == other.name


class Told:
    """Tells a list when it is asked."""

    def __init__(self, told):
        self.told = told

    def __hash__(self):
        self.told.append("hash")
        return 3


class Printed:
    def __hash__(self):
        print("hashed")
        return 1


class Seeded:
    """Its hash is made of a variable of the module, which may not be there."""

    def __hash__(self):
        return LATE


class Owned:
    """Its hash is made of another object."""

    def __init__(self, owner):
        self.owner = owner

    def __hash__(self):
        return hash(self.owner.name)


class Named:
    def __init__(self, name):
        self.name = name


@dataclasses.dataclass(frozen=True)
class Quiet:
    number: int


def counts(*keys):
    return [(key.hashed, key.compared) for key in keys]


@program("a dictionary of keys that count, returned", BREAK)
def test_returned(x):
    a, b = Counted("a"), Counted("b")
    table = {a: x + 1, b: 2}
    return table[a], counts(a, b), table


@program("dictionaries and sets of keys that count, held at a break", BREAK)
def test_held(x):
    a, b, c = Counted("a"), Counted("b"), Counted("a")
    table, chosen, frozen = {a: 1}, {a, b}, frozenset([b, c])
    gc.get_threshold()
    table[c] = 2
    chosen.add(c)
    found = c in table, b in chosen, a in frozen, len(table), len(chosen)
    return x + 1, found, counts(a, b, c)


@program("keys that count inside of tuples and of frozensets", BREAK)
def test_inside(x):
    a, b = Counted("a"), Counted("b")
    table = {(1, a): 1, frozenset([b]): 2}
    gc.get_threshold()
    return x + 1, counts(a, b), (1, a) in table, counts(a, b)


@program("other kinds of dictionaries, of keys that count", BREAK)
def test_kinds(x):
    a, b = Counted("a"), Counted("b")
    ordered, lists = collections.OrderedDict([(a, 1), (b, 2)]), collections.defaultdict(list)
    lists[a].append(1)
    gc.get_threshold()
    return x + 1, b in ordered, len(ordered), len(lists), counts(a, b)


@program(
    "a dictionary from outside, into which keys that count are put", BREAK, inputs=lambda: (torch.ones(2), {}, set())
)
def test_put_outside(x, table, chosen):
    a, b = Counted("a"), Counted("b")
    table[a] = 1
    table.setdefault(b, 2)
    chosen.add(a)
    chosen.discard(b)
    table.pop(a)
    return x + 1, counts(a, b)


@program(
    "a dictionary from outside that holds keys that count",
    BREAK,
    inputs=lambda: (torch.ones(2), {Counted("a"): 1, Counted("b"): 2}, Counted("b")),
)
def test_from_outside(x, table, key):
    found = table[key], key in table, len(table)
    return x + 1, found, counts(key, *table)


@program("a dictionary of keys that count, which nobody needs later")
def test_dropped(x):
    a, b = Counted("a"), Counted("a")
    table = {a: 1}
    table[b] = 2
    return x + len(table), counts(a, b)


@program("keys that tell a list when they are hashed", BREAK, inputs=lambda: (torch.ones(2), []))
def test_told(x, told):
    table = {Told(told): 1}
    table[Told(told)] = 2
    gc.get_threshold()
    return x + 1, len(table), len(told)


@program("keys that print when they are hashed", BREAK)
def test_printed(x):
    table = {Printed(): x + 1}
    print("made")
    gc.get_threshold()
    return len(table), list(table.values())


@program(
    "keys whose hash reads a variable that is written in the frame", BREAK, inputs=lambda: (torch.ones(2), Named("n"))
)
def test_late(x, holder):
    global LATE, OTHER
    LATE = 7
    holder.table = {Seeded(): 1}
    OTHER = 2
    gc.get_threshold()
    del LATE, OTHER
    return x + len(holder.table)


@program(
    "keys whose hash reads an object that changes",
    BREAK,
    inputs=lambda: (torch.ones(2), Named("n"), {}),
    steady=False,
)
def test_owner(x, owner, table):
    owner.name = "first"
    key = Owned(owner)
    table[key] = 1
    owner.other = "second"
    gc.get_threshold()
    return x + 1, key in table


@program("keys with a hash of their own that nobody notices")
def test_quiet(x):
    table = {Quiet(1): x + 1}
    table[Quiet(2)] = x * 2
    return table, {Quiet(3), Quiet(3)}, Quiet(1) in table
