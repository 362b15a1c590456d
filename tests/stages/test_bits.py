"""Bits that are read as another type: of inputs, of what was computed just before, reduced, written in place, and changed sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from tests.stages.test_triton import _agree as agree_in_triton

PAIRS = [
    (torch.float32, torch.int32),
    (torch.bfloat16, torch.int16),
    (torch.float16, torch.int16),
    (torch.float64, torch.int64),
    (torch.int32, torch.float32),
    (torch.uint8, torch.int8),
    (torch.float16, torch.bfloat16),
]


def _in_place(x: torch.Tensor, t: torch.dtype) -> torch.Tensor:
    y = x + 1
    y.view(t).add_(1)
    return y * 2


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.dtype], Any]] = {
    "of an input": lambda x, t: x.view(t) * 2,
    "of a sum": lambda x, t: (x + x).view(t) * 2,
    "both": lambda x, t: ((y := x + x), y.view(t) + 1, y * 3),
    "an input as both": lambda x, t: (x.view(t) + 1, x + 1),
    "and back": lambda x, t: (
        ((x + 1).view(t) & 7 if not t.is_floating_point else (x + 1).view(t) * 2).view(x.dtype) + 1
    ),
    "transposed": lambda x, t: (x.t() + 1).contiguous().view(t) + 1,
    "crossing": lambda x, t: ((x.t() + 1).view(t) + 1, x + 1),
    "of a reduction": lambda x, t: x.amax(1).view(t) + 1,
    "reduced": lambda x, t: (x + 1).view(t).amax(1),
    "in the middle of rows": lambda x, t: ((y := x - x.amax(1, keepdim=True)).view(t) + 1, y.amin(1)),
    "written": _in_place,
    "an own input written": lambda x, t: x.clone().view(t).zero_(),
    "smaller elements": lambda x, t: (x + 1).view(torch.uint8) + 1,
}


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(1, 40 * 36 + 1).reshape(40, 36) % 113
    return values.to(dtype) if not dtype.is_floating_point else (values.double() / 7).to(dtype)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]}-{p[1]}")
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_as_another_type(name: str, pair: tuple[torch.dtype, torch.dtype]) -> None:
    source, target = pair
    x = _numbers(source)

    def program(x: torch.Tensor) -> Any:
        return PROGRAMS[name](x, target)

    expected, found = program(x), stoker.compile(program, fullgraph=True)(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("smaller elements", "written")])
def test_bits_in_triton(name: str) -> None:
    agree_in_triton(lambda x: PROGRAMS[name](x, torch.int32), [_numbers(torch.float32)])
