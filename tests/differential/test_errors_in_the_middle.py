"""A graph that raises: what the program did before is done, what it catches is caught, and the error is eager's."""

from __future__ import annotations

import re
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


def _refused(x, i, table, told):
    told.append("before")
    wide = x.expand(3, 2)
    try:
        wide.add_(i)
    except RuntimeError as error:
        told.append(str(error))
    x[1:].copy_(x[:-1])
    wide += 1
    return wide


def _neighbours(x, i, table, told):
    told.append(i)
    y = x.repeat(2)
    y[1:] += y[:-1]
    return y


def _does_not_fit(x, i, table, told):
    told.append("before")
    x[..., -1] += table[None]
    return x


def _draws(x, i, table, told):
    told.append(torch.rand(()))
    y = torch.nn.functional.dropout(table, 0.5)[i]
    told.append(torch.rand(()))
    return y


def _moves(x, i, table, told):
    x.unsqueeze_(0)
    told.append("moved")
    return table[i] + x


def _in_modes(x, i, table, told):
    with torch.no_grad(), torch.autocast("cpu"):
        told.append(torch.is_grad_enabled())
        with torch.inference_mode():
            return (x @ x) + table[i]


def _unread(x, i, table, told):
    table[i]
    told.append("read")
    return x * 2


def _overwritten(x, i, table, told):
    y = table.clone()
    y[i] += 1
    y.zero_()
    return y


def _zeroed(x, i, table, told):
    y = table[i]
    y = y.detach()
    y.zero_()
    return y + torch.ones_like(table[i * 1])


def _of_a_constant(x, i, table, told):
    return torch.zeros(4).index_select(0, i) + torch.full((4,), 2.0)[i]


def _run(f: Callable[..., Any], index: int, grad: bool) -> Any:
    torch.manual_seed(1)
    x, table, told = torch.arange(2.0), torch.ones(4, requires_grad=grad), []
    try:
        result = f(x, torch.tensor([index]), table, told).detach()
    except (IndexError, RuntimeError) as error:
        result = type(error), str(error).splitlines()[0]
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()
    return result, x, x.stride(), x._version, told, torch.rand(()), modes


def _same(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and got.shape == want.shape and torch.allclose(got, want)
    if isinstance(want, (list, tuple)):
        return type(got) is type(want) and len(got) == len(want) and all(map(_same, got, want))
    return type(got) is type(want) and bool(got == want)


PROGRAMS = [
    _counts, _catches, _calls, _prints, _divides, _refused, _neighbours, _does_not_fit, _draws, _moves, _in_modes,
    _unread, _overwritten, _zeroed, _of_a_constant,
]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(
    program: Callable[..., Any], grad: bool, dynamic: bool | None, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = stoker.compile(program, backend=backend, dynamic=dynamic)
    for index in (1, 99, 2, -7):
        got = _run(compiled, index, grad)
        printed = capsys.readouterr().out
        want = _run(program, index, grad)
        assert printed == capsys.readouterr().out
        assert _same(got, want), (got, want)


def _shifted(a, b, told):
    told.append("before")
    a.copy_(b)
    return a * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_inputs_that_meet_in_a_later_call(backend: str) -> None:
    compiled = stoker.compile(_shifted, backend=backend)
    for shift in (4, 1, 5, 0):
        memory, told = torch.arange(9.0), []
        other, said = memory.clone(), []
        try:
            wanted = _shifted(memory[:4], memory[shift : shift + 4], told)
        except RuntimeError as error:
            wanted = str(error)
        try:
            found = compiled(other[:4], other[shift : shift + 4], said)
        except RuntimeError as error:
            found = str(error)
        assert _same((found, other, said), (wanted, memory, told)), (found, wanted)


@pytest.mark.parametrize(
    "program",
    [
        lambda i: torch.nn.functional.one_hot(i, 5),
        lambda i: torch.zeros(5).scatter(0, i, 2.0),
        lambda i: torch.zeros(5, 5).scatter_(1, i[:, None], 2.0),
        lambda i: torch.nn.functional.binary_cross_entropy(i.float() / 4, i.float() / 4),
        lambda i: torch.nn.functional.binary_cross_entropy((i / 4).clamp(0, 1), i.float() / 4),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_ranges(program: Callable[..., Any], dynamic: bool | None) -> None:
    """What eager refuses by value is refused, with its words."""
    compiled = stoker.compile(program, dynamic=dynamic)
    for index in ([0, 3], [4, 0, 2], [5, 1], [-1, 2], [1]):
        given = torch.tensor(index)
        try:
            expected = program(given)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error).splitlines()[0])):
                compiled(given)
        else:
            torch.testing.assert_close(compiled(given), expected)


def _seen_flat(x, told):
    seen = x.expand(2, *x.shape)
    told.append("before")
    return seen.view(-1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_view_that_the_memory_does_not_allow(backend, dynamic):
    """Also of a dimension of one element beside one that varies: what comes before the error is done."""
    compiled = stoker.compile(_seen_flat, backend=backend, dynamic=dynamic)
    for rows in (1, 3, 1):
        outcomes = []
        for call in (_seen_flat, compiled):
            told: list[str] = []
            with pytest.raises(RuntimeError, match="view size is not compatible") as caught:
                call(torch.ones(rows, 2), told)
            outcomes.append((type(caught.value), told))
        assert outcomes[0] == outcomes[1] == (RuntimeError, ["before"])
