"""Scans: cumulative operators along any dimension, in any type, through every stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch

SHAPES = {"rows": (7, 33), "long": (1, 5000), "planes": (3, 5, 70), "one": (4, 1), "empty": (0, 3)}


def _made(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(-3, 4, shape).to(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8], ids=str)
def test_cumulative(agree: Any, shape: str, dtype: torch.dtype) -> None:
    x = _made(SHAPES[shape], dtype)
    programs = [
        lambda x, d=d, f=f: f(x, d) for d in range(x.dim()) for f in (torch.cumsum, torch.cumprod, torch.cummax)
    ]
    programs += [lambda x: torch.cummin(x, -1), lambda x: torch.cumsum(x.transpose(0, -1), 0)]
    programs += [lambda x: torch.cumsum(x * 2, 0) + 1, lambda x: torch.cumsum(x, -1, dtype=torch.float32)]
    agree(programs, [x])


def test_logcumsumexp(agree: Any) -> None:
    x = torch.randn(5, 40)
    x[0, :3] = torch.tensor([float("-inf"), float("-inf"), 1.0])
    x[1, 4], x[2, 5] = float("inf"), float("nan")
    agree([lambda x: torch.logcumsumexp(x, 1), lambda x: torch.logcumsumexp(x.t(), 1)], [x], exact=False)


def test_extremes_of_what_is_no_number(agree: Any) -> None:
    x = torch.tensor([[1.0, float("nan"), 0.0, float("nan")], [float("-inf"), 2.0, 2.0, float("inf")]])
    agree([lambda x: torch.cummax(x, 1), lambda x: torch.cummin(x, 1), lambda x: torch.cummax(x, 0)], [x])
