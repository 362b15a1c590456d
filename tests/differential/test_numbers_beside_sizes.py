"""Numbers that vary (sizes, arguments, what data tells) and tensors, beside truth values, members of enums and numbers of other classes."""

from __future__ import annotations

import enum

import pytest
import torch

import stoker


class Number(int):
    pass


class Share(float):
    pass


class Mode(enum.IntEnum):
    ONE = 1
    FOUR = 4


class Bits(enum.IntFlag):
    READ = 1
    WRITE = 4


class Own(int):
    """Has some operators of its own."""

    def __add__(self, other):
        return "add"

    def __radd__(self, other):
        return "radd"

    def __eq__(self, other):
        return "eq"

    def __gt__(self, other):
        return "gt"

    __hash__ = int.__hash__


class OwnShare(float):
    def __rmul__(self, other):
        return "rmul"

    def __lt__(self, other):
        return "lt"


GIVEN = Number(4)
VARYING = ["x.shape[0]", "n", "z", "x.sum().item()", "int(x.sum().item())", "len(x)", "x.numel() * 2"]
OTHERS = ["Number(4)", "Share(4.5)", "Mode.FOUR", "Bits.WRITE", "Own(4)", "OwnShare(2.5)", "GIVEN", "True", "2", "2.5"]
SYMBOLS = ["==", "!=", "<", ">=", "+", "*", "//", "-", "%", "**", "&", "/", "<<"]


def caught(function):
    try:
        return function()
    except (TypeError, ValueError, ZeroDivisionError) as error:
        return type(error).__name__, str(error)


def compared(expressions, names, calls, dynamic):
    lines = "".join(f"    found.append(caught(lambda: {expression}))\n" for expression in expressions)
    scope = dict(globals())
    exec(f"def function({names}):\n    found = []\n{lines}    return x + 1, found", scope)
    function = scope["function"]
    compiled = stoker.compile(function, backend="eager", dynamic=dynamic)
    for given in calls:
        for expression, mine, eagers in zip(expressions, compiled(*given)[1], function(*given)[1]):
            assert (type(mine), str(mine)) == (type(eagers), str(eagers)), (expression, given)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("varying", VARYING)
def test_operators(varying, other):
    pairs = [f"({varying}) {symbol} {other}" for symbol in SYMBOLS] + [f"{other} {s} ({varying})" for s in SYMBOLS]
    compared(pairs, "x, n, z", [(torch.ones(k), k + 3, k + 0.25) for k in (4, 5)], True)


FUNCTIONS = [
    "max(n, Mode.FOUR)", "min(n, True)", "divmod(n, Mode.FOUR)", "divmod(Number(9), n)", "sum([n, True, Mode.ONE])", "n in [Mode.FOUR, 7]",
    "x[: Mode.FOUR].sum()", "x.view(n - 3, Mode.ONE).shape", "list(range(Mode.ONE, n, Number(2)))", "n * (n > 4)", "(n > 4) + n",
    "(n > 4) & True", "x * (n > 4)", "~n", "~(n > 4)", "~z", "-n + True", "n << Mode.ONE", "n | Number(3)", "f'{n + True}'",
    "[0] * (n * True)", "x.shape == (Mode.FOUR,)", "round(z, Mode.ONE)", "z * Mode.FOUR + True", "float(n) * True",
]  # fmt: skip


def test_functions():
    compared(FUNCTIONS, "x, n, z", [(torch.ones(k), k + 3, k + 0.25) for k in (4, 5)], True)


@pytest.mark.parametrize("dynamic", [None, True])
def test_tensors(dynamic):
    """A tensor looks into a number, whatever its class says of comparing; on the left, the number's class is asked first."""
    symbols = ["==", "!=", "<", ">=", "+", "*", "//"]
    others = ["Number(1)", "Share(1.5)", "Mode.ONE", "Bits.READ", "Own(1)", "GIVEN", "True", "n"]
    pairs = [f"x {s} {other}" for s in symbols for other in others] + [
        f"{other} {s} x" for s in symbols for other in others
    ]
    compared(pairs, "x, n", [(torch.ones(2), Number(1)), (torch.zeros(3), Number(0))], dynamic)
