"""A graph that raises: what the program did before is done, what it catches is caught, and the error is eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def _counts(x, i, table, told):
    told.append("before")
    x.add_(1)
    y = table[i]
    told.append("after")
    return y * x.sum()


def _catches(x, i, table, told):
    try:
        told.append("inside")
        return table[i] + x.sum()
    except IndexError as error:
        told.append(str(error))
        return x * 0
    finally:
        told.append("last")


def _calls(x, i, table, told):
    def look(i):
        told.append("looking")
        return table.index_select(0, i)

    x.mul_(2)
    return look(i) + look(i * 0)


def _prints(x, i, table, told):
    print("before")
    return torch.nn.functional.embedding(i, table[:, None]) @ x[:1]


def _divides(x, i, table, told):
    told.append(int(i.numel()))
    return i // (i - i) + x.sum()


def _run(f: Callable[..., Any], index: int, grad: bool) -> Any:
    x, table, told = torch.zeros(2), torch.ones(4, requires_grad=grad), []
    try:
        result = f(x, torch.tensor([index]), table, told).detach()
    except (IndexError, RuntimeError) as error:
        result = type(error), str(error).splitlines()[0]
    return result, x, told


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", [_counts, _catches, _calls, _prints, _divides])
def test_program(program: Callable[..., Any], grad: bool, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = stoker.compile(program)
    for index in (1, 99, 2, -7):
        got = _run(compiled, index, grad)
        printed = capsys.readouterr().out
        want = _run(program, index, grad)
        assert printed == capsys.readouterr().out
        torch.testing.assert_close(got[1], want[1])
        assert got[2] == want[2]
        if isinstance(want[0], tuple):
            assert got[0] == want[0]
        else:
            torch.testing.assert_close(got[0], want[0])
