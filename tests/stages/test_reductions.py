"""Reductions of rows of every length: short, several ways at once, and what is left over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stoker
from tests.stages.conftest import Agree

LENGTHS = [5, 64, 513, 768, 1024, 1500, 4096, 5003]


def _rows(dtype: torch.dtype, length: int) -> torch.Tensor:
    torch.manual_seed(length)
    x = torch.randn(5, length)
    x[1, length // 2], x[2, 0], x[3, -1] = float("nan"), float("inf"), float("-inf")
    return x.to(dtype) if dtype.is_floating_point else torch.randint(-9, 9, (5, length)).to(dtype)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.int16], ids=str
)
def test_every_length(agree: Agree, dtype: torch.dtype) -> None:
    given = [_rows(dtype, length) for length in LENGTHS]
    programs: list[Any] = []
    for number in range(len(LENGTHS)):
        pick = lambda *x, n=number: x[n]  # noqa: E731
        programs += [lambda *x, p=pick: p(*x).amax(1), lambda *x, p=pick: p(*x).any(1), lambda *x, p=pick: p(*x).all(1)]
        programs += [lambda *x, p=pick: p(*x).argmin(1), lambda *x, p=pick: torch.min(p(*x), 1)]
    agree(programs, given)
    sums = [lambda *x, n=n: (x[n].sum(1), x[n].sign().prod(1), (x[n] * 2).sum()) for n in range(len(LENGTHS))]
    agree(sums, given, exact=not dtype.is_floating_point)


def test_lengths_that_change() -> None:
    compiled = stoker.compile(lambda x: (x.sum(1), x.amax(1), x.softmax(1)), dynamic=True)
    for length in LENGTHS[::-1]:
        x = torch.randn(7, length, generator=torch.Generator().manual_seed(length))
        for found, wanted in zip(compiled(x), (x.sum(1), x.amax(1), x.softmax(1))):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("sizes", [(0, 3), (2, 0), (0,), (3, 0, 2)])
def test_reductions_of_nothing(sizes):
    """Beside loops that never run."""

    def f(x):
        return x.any(), x.relu() + 1, x.sum(-1), x.sum() * 2

    x = torch.zeros(sizes)
    for mine, eager in zip(stoker.compile(f)(x), f(x)):
        torch.testing.assert_close(mine, eager)
