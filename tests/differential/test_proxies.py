"""Mapping proxies are windows: whoever changes the dictionary behind one, it is seen through it, in one frame and behind breaks."""

from __future__ import annotations

import collections
import gc
import types

import torch
from harness import BREAK, program

TABLE = {"a": 1, "b": 2}
WINDOW = types.MappingProxyType(TABLE)


def proxied(made=dict):
    def inputs():
        table = made({"a": 1, "b": 2})
        return torch.ones(2), table, types.MappingProxyType(table)

    return inputs


class Holder:
    shared = [1, 2]  # noqa: RUF012

    def method(self):
        return 3


@program("a proxy that is read before its dictionary changes, and after", inputs=proxied())
def test_proxy_first(x, table, window):
    before = dict(window)
    table["c"] = 3
    table["a"] = x * 2
    del table["b"]
    return x + 1, before, list(window), window["a"], window == table, len(window), "b" in window, window.get("c")


@program("a proxy that is met after its dictionary changed", inputs=proxied())
def test_dictionary_first(x, table, window):
    table["c"] = 3
    table.pop("a")
    return x + 1, dict(window), str(window), bool(window), window | {"d": 4}, {"e": 5} | window, window.copy()


@program("a proxy whose dictionary is cleared", inputs=proxied())
def test_cleared(x, table, window):
    first = len(window)
    table.clear()
    return x + first, len(window), list(window.items()), bool(window), window.get("a", "none")


@program("views of a proxy", inputs=proxied())
def test_views(x, table, window):
    keys, values, items = window.keys(), window.values(), window.items()
    table["c"] = 3
    behind = keys.mapping
    table["d"] = 4
    return x + 1, list(keys), list(values), list(items), dict(behind), len(keys), type(behind).__name__


@program("a proxy of an ordered dictionary", inputs=proxied(collections.OrderedDict))
def test_ordered(x, table, window):
    table.move_to_end("a")
    return x + 1, list(window), str(window), type(window.copy()).__name__, list(window.items()), window == table


@program("a proxy of a dictionary that makes what it lacks", inputs=proxied(lambda d: collections.defaultdict(list, d)))
def test_default(x, table, window):
    made = window["new"]
    made.append(1)
    return x + 1, window["new"], table["new"], len(window), window.get("none"), type(window | {}).__name__


@program("a global proxy, its dictionary changed by name")
def test_global(x):
    before = len(WINDOW)
    TABLE["z"] = 9
    after = dict(WINDOW)
    del TABLE["z"]
    return x + 1, before, after, len(WINDOW)


@program("a proxy of a dictionary from outside", inputs=lambda: (torch.ones(2), {"a": 1}))
def test_made_of_outside(x, table):
    window = types.MappingProxyType(table)
    table["b"] = 2
    nested = types.MappingProxyType(window)
    return x + 1, len(window), table.keys().mapping["b"], window == table, dict(nested), window


@program("an iterator over a proxy whose dictionary grows", inputs=proxied())
def test_grows(x, table, window):
    try:
        for key in window:
            table[key + key] = 1
    except RuntimeError as error:
        return x + 1, str(error), list(window)


@program("a proxy of an instance's dictionary", inputs=lambda: (torch.ones(2), Holder()))
def test_instance(x, holder):
    window = types.MappingProxyType(vars(holder))
    before = len(window)
    holder.name = "n"
    return x + 1, before, dict(window)


@program("proxies and their dictionaries across a break", BREAK, inputs=proxied())
def test_across(x, table, window):
    made = {"m": 1}
    mine = types.MappingProxyType(made)
    table["c"] = 3
    keys = window.keys()
    gc.get_threshold()
    table["d"] = 4
    made["n"] = 2
    return x + 1, dict(window), list(keys), dict(mine), mine == made


@program("the namespace of a class is a window, too", BREAK, inputs=lambda: (torch.ones(2),), factory=True)
def test_namespace():
    class Local:
        kept = [1]  # noqa: RUF012

    def function(x):
        window, keys = Local.__dict__, Local.__dict__.keys()
        before = "late" in window, len(window["kept"])
        Local.kept.append(2)
        gc.get_threshold()
        setattr(Local, "late", 5)  # noqa: B010
        found = before, window.get("late"), "late" in keys, window["kept"]
        del Local.late
        Local.kept.pop()
        return x + 1, found

    return function


@program("the namespace of a class")
def test_class(x):
    window = Holder.__dict__
    window["shared"].append(3)
    found = list(window["shared"]), Holder.shared is window["shared"], "method" in window, type(window).__name__
    Holder.shared.pop()
    return x + 1, found, window["method"](None)


@program("the namespace of a class as an argument", inputs=lambda: (torch.ones(2), Holder.__dict__))
def test_class_argument(x, window):
    return x + window["method"](None), "shared" in window, window["shared"] is Holder.shared


@program("two dictionaries, and a proxy of one of them", inputs=proxied())
def test_one_of_two(x, table, window):
    other = dict(table)
    other["c"] = 3
    return x + 1, "c" in window, "c" in other, window == other
