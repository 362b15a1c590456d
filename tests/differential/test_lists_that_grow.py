"""Lists from outside that captured code adds to: what is added is added, and a length that nobody asks for is no guard."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

X = torch.arange(3.0)
SEEN: list[Any] = []
BY_NAME: dict[str, list[Any]] = {"a": [], "b": [1]}


def appends(x, out):
    out.append(x.sum())
    return x * 2


def appends_twice(x, out):
    out.append(x * 2)
    out.append("end")


def extends(x, out):
    out.extend([x + n for n in range(2)])
    out += [x]
    return x


def extends_by_itself_made(x, out):
    parts = []
    for n in range(3):
        parts.append(x * n)
    out.extend(parts)
    out.append(parts)
    return parts


def to_a_global(x, out):
    SEEN.append(x + 1)
    return x


def inside_a_dictionary(x, out):
    BY_NAME["a"].append(x)
    BY_NAME["b"].append(len(BY_NAME))
    return x + 1


def by_two_names(x, out):
    other = out
    other.append(x)
    out.append(x + 1)
    return x


def adds_itself(x, out):
    out.append(out)
    out.pop()
    return x


def in_a_closure(x, out):
    def add(value):
        out.append(value)
        return value * 2

    return add(add(x))


def behind_a_break(x, out):
    out.append(x)
    zlib.adler32(b"key")
    out.append(x + 1)
    return x * 2


def of_strings(x, out):
    out.append(f"{tuple(x.shape)}")
    return x


STEADY = [
    appends, appends_twice, extends, extends_by_itself_made, to_a_global, inside_a_dictionary, by_two_names, in_a_closure,
    behind_a_break, of_strings,
]  # fmt: skip


def then_asks(x, out):
    out.append(x)
    return x * len(out)


def asks_first(x, out):
    if len(out) < 2:
        out.append(x)
    return x + len(out)


def then_reads(x, out):
    out.append(x + 1)
    return out[-1] * 2 + out[0]


def then_iterates(x, out):
    out.append(x)
    return sum(part.sum() for part in out)


def then_pops(x, out):
    out.append(x)
    out.append(x + 1)
    return out.pop() + out.pop(0)


def then_sorts(x, out):
    out.append(x)
    out.sort(key=len)
    out.reverse()
    return x


def while_iterated(x, out):
    for part in out:
        x = x + part
        if len(out) < 6:
            out.append(x)
    return x


def then_raises(x, out):
    out.append(x + 1)
    raise ValueError("afterwards")


def then_compares(x, out):
    out.append(1)
    return x + (out == [1]), bool(out), 1 in out


ASKING = [
    then_asks, asks_first, then_reads, then_iterates, then_pops, then_sorts, while_iterated, then_raises, then_compares, adds_itself,
]  # fmt: skip

BEGUN = (then_reads, while_iterated)


def run(program: Any, out: list[Any]) -> str:
    try:
        result = program(X, out)
    except ValueError as error:
        result = repr(error)
    return repr((result, out, SEEN, BY_NAME))


def calls(program: Any, *, begun: bool) -> list[str]:
    SEEN.clear()
    BY_NAME.update(a=[], b=[1])
    out: list[Any] = [X] if begun else []
    return [run(program, out) for _ in range(5)]


def check(program: Any, compiled: Any) -> None:
    assert calls(compiled, begun=program in BEGUN) == calls(program, begun=program in BEGUN)


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program", STEADY, ids=lambda p: p.__name__)
def test_a_list_that_only_grows_is_not_compiled_for_again(program: Any, backend: str) -> None:
    log.clear()
    check(program, stoker.compile(program, backend=backend))
    assert not log.events("recompile")


@pytest.mark.parametrize("program", ASKING, ids=lambda p: p.__name__)
def test_who_asks_is_answered(program: Any) -> None:
    check(program, stoker.compile(program, backend="eager"))


def test_attributes_of_modules() -> None:
    class Recording(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.history.append(x.mean())
            self.history += [x.amax()]
            return x * 2

    model = Recording()
    compiled = stoker.compile(model)
    log.clear()
    for n in range(5):
        compiled(X + n)
    assert not log.events("recompile")
    torch.testing.assert_close(model.history, [part for n in range(5) for part in ((X + n).mean(), (X + n).amax())])


def test_two_lists_that_become_one() -> None:
    def program(x, a, b):
        a.append(x)
        b.append(x + 1)
        return x

    compiled = stoker.compile(program, backend="eager")
    for make in (lambda: ([], []), lambda: ([0], [0])):
        for same in (False, True, False):
            ends = []
            for function in (program, compiled):
                a, b = make()
                b = a if same else b
                function(X, a, b)
                ends.append((a, b))
            torch.testing.assert_close(*ends)
