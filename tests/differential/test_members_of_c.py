"""Fields that C's classes give to classes derived from them, notes of groups, and the kind of set that views make."""

from __future__ import annotations

import types

import pytest
import torch

import stoker


class Phasor(complex):
    pass


class Tree(ExceptionGroup):
    pass


def set_field(value, name):
    try:
        setattr(value, name, 1)
    except AttributeError as error:
        return str(error)
    return "set"


def delete_field(value, name):
    try:
        delattr(value, name)
    except AttributeError as error:
        return str(error)
    return "deleted"


def same(function, *args):
    compiled = stoker.compile(function)
    for _ in range(2):
        expected, found = function(torch.ones(2), *args), compiled(torch.ones(2), *args)
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]
        assert [type(part) for part in found[1:]] == [type(part) for part in expected[1:]]


def test_fields_of_a_derived_complex():
    def function(x, outside):
        made = Phasor(1, 2)
        return x * made.real + outside.imag, made.imag, outside.real, made.conjugate(), made + outside

    same(function, Phasor(3, 4))


@pytest.mark.parametrize("change", [set_field, delete_field])
def test_fields_that_are_only_read(change):
    def function(x):
        group, tree = ExceptionGroup("a", [ValueError(1)]), Tree("b", [KeyError(2)])
        told = [change(error, name) for error in (group, tree) for name in ("message", "exceptions")]
        told += [change(Phasor(1, 2), name) for name in ("real", "imag")]
        return x + len(group.exceptions), told, group.message, tree.message

    same(function)


@pytest.mark.parametrize("notes", [123, None, ("a", "b"), ["a"], {"a": 1}, "ab", {1}])
def test_notes_of_parts(notes):
    def function(x):
        group = ExceptionGroup("a", [ValueError(1), TypeError(2)])
        group.__notes__ = notes
        parts = group.split(TypeError)
        return x + 1, [getattr(part, "__notes__", "none") for part in parts]

    same(function)


@pytest.mark.parametrize("text", ["&", "|", "-", "^"])
@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("view", ["keys", "items"])
def test_sets_with_views(text, kind, view):
    scope = {"kind": kind}
    source = f"def function(x):\n    d = {{1: 2, 3: 4}}\n    s = kind([1, 5, (3, 4)])\n    v = d.{view}()\n"
    exec(f"{source}    return x + 1, s {text} v, v {text} s, s {text} s, s {text} {{1}}", scope)
    same(scope["function"])


class Answering(types.ModuleType):
    """A module of modules, as `torch.classes` is: each name is answered, and some by an error."""

    def __getattr__(self, name):
        if self.__name__ != "outer":
            raise RuntimeError(f"nothing is called {name}")
        return Answering(name)


def test_objects_are_named_without_asking_them():
    outer = Answering("outer")

    def function(x):
        return x + 1, getattr(outer, "inner", None) is None

    same(function)
