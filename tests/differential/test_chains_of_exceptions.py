"""Fields that every exception has, what they take, and chains of exceptions that were raised while others were handled."""

from __future__ import annotations

import torch
from harness import BREAK, program

import stoker


class NotReally(Exception):
    def __new__(cls, *args):
        return object()


class Checked(type):
    def __subclasscheck__(cls, subclass):
        raise ValueError("nobody asks")


class Peculiar(Exception, metaclass=Checked): ...


class Plain: ...


def said(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


@program("fields of exceptions that are set to what they do not take")
def test_fields(x):
    def sets(name, value):
        setattr(ValueError(), name, value)

    values = 1, None, KeyError(), True
    names = "__cause__", "__context__", "__traceback__", "__suppress_context__"
    return x + 1, [said(sets, name, value) for name in names for value in values]


@program("__suppress_context__, set and kept")
def test_suppressed(x):
    shown = []
    try:
        try:
            try:
                raise TypeError
            except Exception:
                raise ValueError from None
        except ValueError as error:
            shown += [error.__cause__, error.__suppress_context__]
            error.__suppress_context__ = False
            raise error
    except ValueError as error:
        shown += [error.__cause__, error.__suppress_context__, type(error.__context__).__name__]
    return x + 1, shown


@program("causes that are no exceptions")
def test_causes(x):
    def raises(cause):
        raise IndexError from cause

    return x + 1, [said(raises, cause) for cause in (5, KeyError, KeyError("a"), None)]


@program("a class of exceptions that makes something else")
def test_made_by_class(x):
    def raises():
        raise NotReally

    return x + 1, said(raises)


@program("chains that would come back to where they began")
def test_cycles_of_contexts(x):
    a, b, c = KeyError("a"), ValueError("b"), TypeError("c")
    try:
        try:
            raise a
        except KeyError:
            try:
                raise b
            except ValueError:
                try:
                    raise c
                except TypeError:
                    raise a
    except KeyError as error:
        chain = []
        while error is not None:
            chain.append(str(error))
            error = error.__context__
    return x + 1, chain


@program("an exception that is raised again while another is handled")
def test_raised_again(x):
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            try:
                1 / 0
            except ZeroDivisionError:
                raise first
    except KeyError as error:
        return x + 1, type(error.__context__).__name__, error.__context__.__context__


@program("an except clause asks classes, not their metaclasses")
def test_matching(x):
    try:
        raise KeyError("a")
    except (Peculiar, KeyError) as error:
        return x + 1, str(error)


@program("what was looked for, and in what")
def test_looked_for(x):
    held = Plain()
    try:
        object.__getattribute__(held, "missing")
    except AttributeError as error:
        return x + 1, error.name, error.obj is held


@program("exceptions that check what they are made of", BREAK)
def test_checked_arguments(x):
    return (
        x + 1,
        said(lambda: SyntaxError("bad", ("bad.py", 1, 2))),
        said(lambda: UnicodeDecodeError("ascii", b"a", 0)),
        str(UnicodeEncodeError("baz", "xxxxx", 1, 5, "foo")),
    )


def test_deleted_method():
    def made():
        class Spoiled:
            def __iter__(self):
                return self

            def __next__(self):
                del Spoiled.__next__
                return 1

        def function(x):
            try:
                for _ in Spoiled():
                    x = x + 1
            except (TypeError, AttributeError) as error:
                return x, type(error).__name__

        return function

    wanted, found = made()(torch.ones(2)), stoker.compile(made(), backend="eager")(torch.ones(2))
    assert torch.equal(wanted[0], found[0]) and wanted[1] == found[1]


@program("iterators that have come to their end stay there")
def test_ends(x):
    class_of = [Numbers(2), iter([1, 2, 3].pop, 2), iter([1].pop, 0)]
    first, second = iter(class_of[0]), class_of[1]
    shown = [list(first), list(second)]
    class_of[0].count = 5
    return x + 1, shown, list(first), list(second), said(list, class_of[2])


@program("an iterator of a function that ends it itself")
def test_ended_inside(x):
    held = []

    def gives():
        if len(held) > 1:
            return 2
        held.append(1)
        list(held[0])
        return 1

    held.append(iter(gives, 2))
    return x + 1, said(next, held[0])


@program("what __iter__ gives is no iterator")
def test_no_iterator(x):
    return (
        x + 1,
        said(iter, Careless()),
        said(list, Careless()),
        said(lambda: [*Careless()]),
        said(enumerate, Careless()),
    )


class Numbers:
    def __init__(self, count):
        self.count = count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        return index


class Careless:
    def __iter__(self):
        return 5
