"""Writes to memory that the same operator reads at some sizes, and not at others: eager refuses them at those."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stoker


def first_and_last(x, n):
    x[:n] += x[-n:]
    return x * 2


def of_a_copy(x, n):
    y = x + 1
    y[:n] += y[-n:]
    return y


def of_no_use(x, n):
    y = x + 1
    y[:n] += y[-n:]
    return n * 2


def caught(x, n):
    y = x + 1
    try:
        y[:n].mul_(y[-n:])
    except RuntimeError:
        return y - 1
    return y


def halves(x, n):
    half = x.shape[0] // 2
    x[:half] -= x[-half:]
    return x


def shifted(x, n):
    x[1:] += x[:-1]
    return x


def columns(x, n):
    x[:, :n].copy_(x[:, -n:])
    return x


def into_out(x, n):
    torch.add(x[:n], 1, out=x[-n:])
    return x


PROGRAMS = [first_and_last, of_a_copy, of_no_use, caught, halves, shifted, columns, into_out]


def outcome(function: Callable[..., object], rows: int) -> object:
    x = torch.arange(rows * rows, dtype=torch.float32).view(rows, rows)
    try:
        found = function(x, 3)
    except RuntimeError as error:
        return str(error), x.tolist()
    return found.tolist() if isinstance(found, torch.Tensor) else found, x.tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "sizes", [(24, 12, 20, 5, 3, 8, 4, 6, 9, 2), (4, 5, 3, 12, 2, 24), (3, 4, 9)], ids=["apart", "met", "one"]
)
def test_eager_refuses_at_some_sizes(program: Callable[..., object], backend: str, sizes: tuple[int, ...]) -> None:
    compiled = stoker.compile(program, backend=backend)
    for rows in sizes:
        assert outcome(compiled, rows) == outcome(program, rows), rows
