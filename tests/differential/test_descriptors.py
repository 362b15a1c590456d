"""Descriptors whose classes have methods of their own over those of `property` and its kin are called as Python calls them."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

import stoker


class Doubling(property):
    def __get__(self, instance, owner=None):
        return self if instance is None else 2 * super().__get__(instance, owner)


class Counting(property):
    def __set__(self, instance, value):
        instance.writes += 1
        super().__set__(instance, value)

    def __delete__(self, instance):
        instance.writes = -1


class Static(staticmethod):
    def __get__(self, instance, owner=None):
        function = super().__get__(instance, owner)
        return lambda x: function(x) + 1


class Class(classmethod):
    def __get__(self, instance, owner=None):
        return lambda x: x * (3 if instance is None else 5)


class Cached(functools.cached_property):
    def __get__(self, instance, owner=None):
        return 7 if instance is not None else self


class Lazy:
    def __init__(self, wrapped):
        self.wrapped = wrapped

    def __get__(self, instance, owner=None):
        if instance is None:
            return LazyProperty(self.wrapped)
        value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class LazyProperty(Lazy, property):
    def __init__(self, wrapped):
        property.__init__(self, wrapped)


class Thing:
    def __init__(self):
        self.base, self.writes, self._value = 3, 0, 1

    doubled = Doubling(lambda self: self.base)
    value = Counting(lambda self: self._value, lambda self, new: setattr(self, "_value", new))
    plus = Static(lambda x: x)
    times = Class(lambda cls, x: x)
    cached = Cached(lambda self: 1)

    @Lazy
    def lazy(self):
        self.base += 1
        return self.base


def reads(x, thing):
    return x * thing.doubled


def writes(x, thing):
    thing.value = 5
    thing.value += 1
    return x * thing.value + thing.writes


def deletes(x, thing):
    del thing.value
    return x + thing.writes


def calls(x, thing):
    return thing.plus(x) + Thing.plus(x), thing.times(x), Thing.times(x), x * thing.cached


def lazily(x, thing):
    return x * thing.lazy + thing.lazy, thing.base


def looks_at_class(x, thing):
    found = Thing.lazy
    return x + isinstance(found, property) + isinstance(found, Lazy) + isinstance(Thing.doubled, Doubling)


def gives_away(x, thing):
    return x + 1, Thing.lazy


@pytest.mark.parametrize("program", [reads, writes, deletes, calls, lazily, looks_at_class])
def test_as_in_eager(program: Any) -> None:
    compiled = stoker.compile(program, backend="eager")
    for _ in range(2):
        mine, eager = Thing(), Thing()
        got, want = compiled(torch.ones(2), mine), program(torch.ones(2), eager)
        torch.testing.assert_close(got, want)
        assert vars(mine) == vars(eager)


def test_one_that_leaves_is_whole() -> None:
    _, found = stoker.compile(gives_away, backend="eager")(torch.ones(2), Thing())
    assert type(found) is LazyProperty
    assert found.fget is vars(Thing)["lazy"].wrapped
    assert found.fset is None


class Plain:
    def __get__(self, instance, owner=None):
        return 7


class Meta(type):
    described = Plain()
    seen = property(lambda cls: 11)


class Watching(type):
    def __getattribute__(cls, name):
        return 5 if name == "counted" else super().__getattribute__(name)


def test_a_class_of_descriptors_that_changes() -> None:
    """What an instance holds comes first, until the class of the descriptor can set."""
    kind = type("Kind", (), {"__get__": lambda self, instance, owner=None: 7})
    thing = type("Holder", (), {"number": kind()})()
    thing.__dict__["number"] = 55
    compiled = stoker.compile(lambda x: x * thing.number, backend="eager")
    assert compiled(torch.ones(1)).item() == 55
    kind.__set__ = lambda self, instance, value: None
    assert compiled(torch.ones(1)).item() == 7
    del kind.__set__
    assert compiled(torch.ones(1)).item() == 55


def test_descriptors_of_a_metaclass() -> None:
    """Those that set come before what the class holds, others after it; a metaclass may answer by itself."""
    setting = type("Setting", (Plain,), {"__set__": lambda self, instance, value: None})
    first = type("First", (Meta,), {"described": setting()})("One", (), {"described": 3, "seen": 4})
    second = Meta("Two", (), {"described": 3})
    watched = Watching("Three", (), {"counted": 1})
    program = lambda x: (x * first.described, x * first.seen, x * second.described, x * watched.counted)  # noqa: E731
    assert [r.item() for r in program(torch.ones(1))] == [7, 11, 3, 5]
    torch.testing.assert_close(stoker.compile(program, backend="eager")(torch.ones(1)), program(torch.ones(1)))


class Chained:
    """Class methods around other descriptors: until Python 3.13 they give what those give of the class."""

    size = 3
    flag = classmethod(property(lambda cls: cls.size > 3))
    doubling = classmethod(Doubling(lambda cls: cls.size))
    static = classmethod(staticmethod(lambda *args: len(args)))
    partial = classmethod(functools.partial(lambda *args: len(args)))


class Larger(Chained):
    size = 4

    def of_base(self):
        return super().flag


def test_class_methods_around_descriptors() -> None:
    def program(x):
        flags = Chained.flag, Chained().flag, Larger.flag, Larger().of_base()
        counts = Chained.static(), Chained.partial()
        return x * sum(2**index for index, flag in enumerate(flags) if flag), counts, Larger.doubling

    result, *others = program(torch.ones(1))
    compiled, *compiled_others = stoker.compile(program, backend="eager")(torch.ones(1))
    assert torch.equal(compiled, result)
    if isinstance(Chained.flag, bool):
        assert compiled_others == others


def _named(number):
    return number


def rename(x, function, cached):
    function.__name__, function.__qualname__ = "first", "second"
    function.note = 3
    cached.__wrapped__ = 4
    return x + 1, function.__name__, function.__qualname__, str(function).split()[1], cached.__wrapped__


def test_fields_of_functions_that_c_keeps() -> None:
    """They are not entries of its dictionary, whoever sets them."""
    for call in (rename, stoker.compile(rename, backend="eager")):
        function = types.FunctionType(_named.__code__, globals())
        x, *told = call(torch.ones(1), function, functools.lru_cache(function))
        assert told == ["first", "second", "second", 4]
        assert (function.__name__, function.__qualname__, vars(function)) == ("first", "second", {"note": 3})


class Refusing:
    def __get__(self, instance, owner=None):
        raise AttributeError("no data descriptor")


class Falling:
    refusing = Refusing()

    @functools.cached_property
    def cached(self):
        raise AttributeError("cached")

    @property
    def plain(self):
        raise AttributeError("plain")

    def __getattr__(self, name):
        return f"instead of {name}"


class Lacking(torch.nn.Module):
    @functools.cached_property
    def cached(self):
        return self.nowhere


def fall(x):
    try:
        words = Lacking().cached
    except AttributeError as error:
        words = str(error)
    falling = Falling()
    return x + 1, falling.refusing, falling.cached, falling.plain, words


def test_descriptors_that_raise_lead_to_getattr() -> None:
    found, expected = stoker.compile(fall, fullgraph=True)(torch.ones(1)), fall(torch.ones(1))
    assert found[1:] == expected[1:]
