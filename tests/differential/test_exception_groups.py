"""Exception groups and `except*`."""

from __future__ import annotations

from harness import BREAK, program


@program("except* with two clauses", BREAK)
def test_two(x):
    told = []
    try:
        raise ExceptionGroup("group", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError as group:
        told.append([error.args for error in group.exceptions])
    except* TypeError as group:
        told.append(len(group.exceptions))
    return x * 2, told


@program("except* of a plain exception", BREAK)
def test_plain(x):
    y = x * 2
    try:
        raise ValueError("plain")
    except* ValueError as group:
        found = type(group).__name__, group.message, group.exceptions[0].args
    return y, found


@program("except* that catches a part", BREAK)
def test_rest(x):
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
    except* ValueError:
        x.add_(1)


@program("except* of nested groups, and an error in the handler", BREAK)
def test_nested(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2), ValueError(3)])])
        except* ValueError as group:
            seen = repr(group)
            raise RuntimeError("new")
    except BaseException as error:
        return x * 2, repr(error), seen


@program("except* that nothing matches and with nothing raised", BREAK)
def test_unmatched(x):
    try:
        x = x + 1
    except* ValueError:
        x = x + 2
    try:
        raise ExceptionGroup("group", [KeyError(2)])
    except* ValueError:
        x = x * 3


@program("split, subgroup and derive", BREAK)
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
