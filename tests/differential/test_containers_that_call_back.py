"""Containers whose operations run code of the program, which changes them meanwhile; and what CPython says to arguments that do not fit."""

from __future__ import annotations

import collections
import gc
import weakref

import torch
from harness import BREAK, SKIP, program

LETTERS = frozenset("abc")
KEYED = {(1, 2): 3, (4, 5): 6}
PAIRS = {(0, "zero")}


class Counted:
    """Counts how often it is asked for its hash and compared."""

    def __init__(self):
        self.hashed = self.compared = 0

    def __hash__(self):
        self.hashed += 1
        return 42

    def __eq__(self, other):
        self.compared += 1
        return id(self) == id(other)


class Reversed(dict):
    def keys(self):
        return reversed(list(dict.keys(self)))

    __iter__ = keys


class Triple(tuple): ...


class Letters(frozenset): ...


class Clears:
    """Equal to nothing; empties a list when it is compared."""

    def __init__(self, held):
        self.held = held

    def __eq__(self, other):
        self.held.clear()
        return NotImplemented


class Emptying:
    """A key that empties a dictionary when it is compared."""

    def __init__(self, held):
        self.held = held

    def __hash__(self):
        return 0

    def __eq__(self, other):
        self.held.clear()
        return False


def said(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


@program("containers that hold themselves, as text")
def test_cycles(x):
    items, table, queue = [1], {}, collections.deque([2])
    items.append(items)
    table["self"] = table
    queue.append(queue)
    return x + 1, repr(items), str(table), repr(queue)


@program("a list nested deeper than Python's own text goes", SKIP)
def test_too_deep(x):
    items = []
    for _ in range(3000):
        items = [items]
    try:
        repr(items)
    except RecursionError as error:
        return x + 1, str(error)[:24]


@program("a list too long for memory", BREAK)
def test_too_long(x):
    try:
        return x, [0, 1] * (1 << 61)
    except MemoryError:
        return x + 1


@program("frozensets from outside, with sets", default=True)
def test_constant_sets(x):
    made = set("bd")
    results = LETTERS & made, LETTERS | made, LETTERS - made, LETTERS ^ made, made | LETTERS
    return x + 1, [sorted(found) for found in results], [type(found).__name__ for found in results]


@program("tuples that are keys and elements, compared and joined", default=True)
def test_constant_tuples(x):
    return (
        [key == (1, 2) for key in KEYED],
        [key + (9,) for key in KEYED],
        [(9,) + key for key in KEYED],
        [key < (3, 0) for key in KEYED],
        [pair in [(0, "zero")] for pair in PAIRS],
        x + 1,
    )


@program("keys that are no integers")
def test_keys_of_lists(x):
    items = [1, 2]
    return (
        x + 1,
        said(items.__setitem__, "a", 3),
        said(items.__delitem__, 1.5),
        said(items.index, 1, "a"),
        said(lambda: items["a"]),
        items.index(2, -1),
        said(items.index, 1, 1),
        said((1, 2, 1).index, 1, 1),
    )


@program("__init__ of containers that hold something")
def test_initialized_again(x):
    items, other, chosen, table, queue = [1, 2], [1], {1}, {1: 2}, collections.deque([1], 3)
    items.__init__()
    other.__init__([4])
    chosen.__init__([2])
    table.__init__({3: 4}, a=5)
    queue.__init__([2, 3], 3)
    return x + 1, items, other, chosen, table, queue


@program("dictionaries that change while they are gone over")
def test_changed_while_iterated(x):
    def deletes(table):
        for key in table:
            del table[key]
            table[key] = 0

    def grows(table):
        for key in table.items():
            table[key] = 0

    def clears(table):
        for _ in table.values():
            table.clear()

    kinds = dict, collections.OrderedDict, collections.Counter
    results = [said(change, kind({0: 1, 1: 2})) for change in (deletes, grows, clears) for kind in kinds]
    return x + 1, results, said(grows, {0: 1}), said(grows, collections.OrderedDict({0: 1}))


@program("an iterator of a dictionary that has come to its end stays there")
def test_ended_iterators(x):
    table = {1: 2}
    iterator = iter(table)
    first = list(iterator)
    table[3] = 4
    return x + 1, first, list(iterator), [key for key in {None: 1, 2: None}.items()]


@program("classes of dictionaries that go over their keys in their own way")
def test_own_order(x):
    table = Reversed([("a", 1), ("b", 2)])
    made = {}
    made.update(table)
    return x + 1, list(dict(table).items()), list({**table}.items()), list(made.items())


@program("keywords that built-in bases do not take")
def test_keywords_of_bases(x):
    return (
        x + 1,
        said(lambda: Triple(sequence=())),
        said(lambda: Letters(sequence=())),
        said(lambda: Triple((1,), (2,))[0]),
        said(lambda: Letters("a", "b")),
        Letters("ab"),
    )


@program("dict.fromkeys")
def test_from_keys(x):
    return (
        x + 1,
        said(dict.fromkeys),
        said(lambda: dict.fromkeys([1], 2, 3)),
        dict.fromkeys("aba", 1),
        collections.OrderedDict.fromkeys((letter for letter in "ba"), 2),
    )


@program("sets that are looked up in sets")
def test_sets_in_sets(x):
    held = {frozenset("ab"), 1}
    found = set("ab") in held
    held.remove(set("ba"))
    held.discard(set("zz"))
    return x + 1, found, held, said(held.remove, set("a"))


@program("how often keys are hashed and compared")
def test_counted(x):
    a, b, c = Counted(), Counted(), Counted()
    table = {a: 5}
    table.setdefault(b, [])
    table[c] = 1
    table[c] = 2
    del table[c]
    chosen = frozenset(set(table.keys()))
    counts = [key.hashed for key in (a, b, c)]
    return x + 1, counts, a.compared + b.compared + c.compared, len(chosen)


@program("lists that comparing changes")
def test_changed_while_compared(x):
    left, right, third, fourth = [], [], [], []
    left.append(Clears(right))
    right.append(Clears(left))
    emptied = left == right
    third += [Clears(third), 1, 2]
    fourth += [Clears(fourth), 1]
    return x + 1, emptied, 7 in third, third, said(fourth.index, 8), fourth, third.count(1)


@program("a dictionary that taking from it changes")
def test_changed_while_taken(x):
    source = {1: 1, 2: 2}
    source[Emptying(source)] = 0
    return x + 1, said({Emptying(source): 0}.update, source)


class Kept(set): ...


@program("a weak proxy of an object that only a variable holds", BREAK, inputs=lambda: (torch.ones(2), [1, 2]))
def test_weak_proxy(x, held):
    kept = Kept(held)
    proxy = weakref.proxy(kept)
    return x + 1, len(proxy), sorted(proxy)


class Methodical:
    def method(self):
        return 4


@program("a weak reference to a method of an object that only a variable holds")
def test_weak_method(x):
    kept = Methodical()
    reference = weakref.WeakMethod(kept.method)
    return x + 1, reference()(), reference() is None


@program("a dead weak proxy", BREAK)
def test_dead_proxy(x):
    kept = Methodical()
    proxy = weakref.proxy(kept)
    del kept
    gc.collect()
    try:
        return x + 1, proxy.method()
    except ReferenceError as error:
        return x + 2, str(error)


@program("a weak dictionary of an object that only a variable holds", BREAK, inputs=lambda: (torch.ones(2), [1, 2]))
def test_weak_dictionary(x, held):
    known, kept = weakref.WeakValueDictionary(), Kept(held)
    known["kept"] = kept
    y = x + 1
    gc.get_threshold()
    return y + len(known), sorted(known["kept"])


@program("the number of an object, computed with", BREAK)
def test_identity_as_a_number(x):
    return x + 1, (id(x) & 0) == 0


@program(
    "a dictionary from outside that goes over its keys in its own way",
    inputs=lambda: (torch.ones(2), Reversed([("a", 1), ("b", 2)])),
)
def test_own_order_from_outside(x, table):
    return x + 1, list(table.keys()), list(table), [*dict.keys(table)], len(table)
