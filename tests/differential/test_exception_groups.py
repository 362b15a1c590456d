"""Exception groups and `except*`."""

from __future__ import annotations

import sys

import torch
from harness import BREAK, program


@program("except* with two clauses")
def test_two(x):
    told = []
    try:
        raise ExceptionGroup("group", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError as group:
        told.append([error.args for error in group.exceptions])
    except* TypeError as group:
        told.append(len(group.exceptions))
    return x * 2, told


@program("except* of a plain exception")
def test_plain(x):
    y = x * 2
    try:
        raise ValueError("plain")
    except* ValueError as group:
        found = type(group).__name__, group.message, group.exceptions[0].args
    return y, found


@program("except* that catches a part")
def test_rest(x):
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
    except* ValueError:
        x.add_(1)


@program("except* of nested groups, and an error in the handler")
def test_nested(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2), ValueError(3)])])
        except* ValueError as group:
            seen = repr(group)
            raise RuntimeError("new")
    except BaseException as error:
        return x * 2, repr(error), seen


@program("except* that nothing matches and with nothing raised")
def test_unmatched(x):
    try:
        x = x + 1
    except* ValueError:
        x = x + 2
    try:
        raise ExceptionGroup("group", [KeyError(2)])
    except* ValueError:
        x = x * 3


@program("split, subgroup and derive")
def test_methods(x):
    group = ExceptionGroup("group", [ValueError(1), KeyError(2)])
    first, rest = group.split(ValueError)
    return (
        x * 2,
        group.message,
        repr(first),
        repr(rest),
        repr(group.subgroup(KeyError)),
        repr(group.derive([OSError(1)])),
    )


class Tagged(ExceptionGroup):
    def derive(self, excs):
        return Tagged(f"part of {self.message}", excs)


class Loose(ExceptionGroup):
    def __new__(cls, message, excs, code):
        made = super().__new__(cls, message, excs)
        made.code = code
        return made

    def derive(self, excs):
        return Loose(self.message, excs, self.code)


def tree():
    return ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2), ValueError(3)]), TypeError(4)])


@program("a clause of except* raises on")
def test_raises_on(x):
    try:
        raise tree()
    except* ValueError:
        raise
    except* KeyError:
        x.add_(1)


@program("clauses of except* raise anew, and a part is left")
def test_raises_anew(x):
    try:
        raise tree()
    except* ValueError as group:
        raise RuntimeError("new") from group
    except* KeyError:
        raise OSError("other")


@program("what except* raises, caught outside")
def test_caught_outside(x):
    try:
        try:
            raise tree()
        except* ValueError:
            raise RuntimeError("new")
        except* KeyError:
            raise
    except ExceptionGroup as group:
        parts = [(type(e), str(e), type(e.__context__), e.__suppress_context__) for e in group.exceptions]
        return x * 2, repr(group), str(group), parts


@program("except* where a plain exception does not match")
def test_plain_left(x):
    y = x + 1
    try:
        raise KeyError("left")
    except* (ValueError, TypeError):
        y = y + 1
    return y


@program("an error in a clause of except* of a plain exception")
def test_plain_raises(x):
    try:
        raise ValueError(1)
    except* ValueError:
        raise TypeError("other")


@program("a clause of except* raises on while another error is handled")
def test_raises_on_in_finally(x):
    try:
        x.nowhere
    finally:
        try:
            raise ValueError(x.dim())
        except* ValueError:
            raise


@program("except* with else and finally")
def test_else(x):
    told = []
    try:
        told.append("try")
    except* ValueError:
        told.append("except")
    else:
        told.append("else")
    finally:
        told.append("finally")
    try:
        raise ExceptionGroup("one", [ValueError(1)])
    except* ValueError:
        told.append(repr(sys.exception()))
    finally:
        told.append(sys.exception())
    return x * 2, told


@program("groups of the user's classes, and their notes, split")
def test_own_classes(x):
    first = Tagged("t", [ValueError(1), KeyError(2)])
    first.add_note("noted")
    second = Loose("l", [ValueError(1), Tagged("in", [KeyError(2), TypeError(3)])], 7)
    parts = [*first.split(KeyError), *second.split((KeyError, ValueError)), second.subgroup(lambda e: e.args == (2,))]
    told = [(type(p).__name__, p.message, getattr(p, "__notes__", None), getattr(p, "code", None)) for p in parts]
    return x * 2, told, [repr(p) for p in parts], parts[0].__notes__ is first.__notes__, parts, second


@program("split with nothing, all, and what it refuses")
def test_split_ends(x):
    group = tree()
    whole, nothing = group.split(ExceptionGroup)
    told = [
        whole is group,
        nothing,
        group.split(OSError)[0],
        group.subgroup(OSError),
        group.split(Exception)[0] is group,
    ]
    for wrong in (3, (ValueError, 3), "a", int):
        try:
            group.split(wrong)
        except TypeError as error:
            told.append(str(error))
    return x * 2, told


@program("how groups are made, and what is refused")
def test_made(x):
    told = [type(BaseExceptionGroup("g", [ValueError(1)])), type(BaseExceptionGroup("g", (KeyboardInterrupt(),)))]
    wrong = [("g", []), ("g", 3), ("g", {}), (1, [ValueError()]), ("g", [1]), ("g", [KeyboardInterrupt()]), ("g",), ()]
    for arguments in wrong:
        try:
            ExceptionGroup(*arguments)
        except (TypeError, ValueError) as error:
            told.append((type(error), str(error)))
    try:
        Tagged("t", [KeyboardInterrupt()])
    except TypeError as error:
        told.append(str(error))
    return x * 2, told


@program("what except* refuses to catch")
def test_refused(x):
    told = []
    for wanted in (ExceptionGroup, int, (ValueError, BaseExceptionGroup)):
        try:
            try:
                raise tree()
            except* wanted:
                pass
        except TypeError as error:
            told.append(str(error))
    return x * 2, told


@program("a group from outside", inputs=lambda: (torch.ones(2), tree()))
def test_from_outside(x, group):
    found, rest = group.split(ValueError)
    return x * 2, found, repr(rest), group.exceptions[0].args, group.message, len(group.exceptions)


@program("a group that is returned")
def test_returned(x):
    try:
        raise tree()
    except* ValueError as group:
        kept = group
    except* BaseException as group:
        other = group
    return x * 2, kept, other


@program("except* in a function that is called, with operations in its clauses")
def test_called(x):
    def step(y, errors):
        try:
            if errors:
                raise ExceptionGroup("step", errors)
        except* ValueError as group:
            y = y + len(group.exceptions)
        except* KeyError:
            y = y * 3
        return y

    return step(x, []), step(x, [ValueError(1)]), step(x, [ValueError(1), KeyError(1), ValueError(2)])


@program("a break inside a clause of except*", BREAK)
def test_break(x):
    try:
        raise tree()
    except* ValueError as group:
        print(x.sum() > 1000)
        count = len(group.exceptions)
    except* (KeyError, TypeError) as group:
        x = x + count
    return x * 2


@program("fields of exceptions by keyword, and a cause that is set")
def test_fields(x):
    told = []
    for error in (AttributeError("a", name="n", obj=3), NameError("b", name="m"), ImportError("c", name="i", path="p")):
        told.append((error.args, error.name, getattr(error, "obj", None), getattr(error, "path", None)))
    for make in (lambda: ValueError(1, a=2), lambda: AttributeError("a", wrong=2), lambda: OSError(a=1)):
        try:
            make()
        except TypeError as error:
            told.append(str(error))
    error = ValueError(1)
    error.__cause__ = None
    return x * 2, told, error.__suppress_context__
