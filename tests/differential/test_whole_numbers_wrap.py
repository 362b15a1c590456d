"""Whole numbers wrap around in kernels, as eager's do: a C++ compiler may take it that they never get there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stoker

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one more is more": lambda a: (a + 1) > a,
    "one less is less": lambda a: (a - 1) < a,
    "sizes are not negative": lambda a: a.abs() >= 0,
    "the opposite is another": lambda a: -a != a,
    "twice and half": lambda a: (a * 2) // 2,
    "squares are not negative": lambda a: a * a >= 0,
    "three times less twice": lambda a: a * 3 - a * 2 == a,
    "shifted there and back": lambda a: (a << 3) >> 3,
    "a sum": lambda a: a.sum(),
    "running sums": lambda a: a.cumsum(0),
    "a power": lambda a: a**3,
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_wraps(name: str, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    program, numbers = PROGRAMS[name], [limits.max, limits.min, 1, 0, limits.max // 2 + 2]
    given = torch.tensor(numbers * 7, dtype=dtype)
    result, expected = stoker.compile(program, fullgraph=True)(given), program(given)
    assert result.dtype is expected.dtype
    assert torch.equal(result, expected)
