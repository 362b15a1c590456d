"""Sums and products of truths, and which complex numbers are nan or infinite, with the default back end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

SUMS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(dtype=torch.bool),
    "prod": lambda x: x.prod(dtype=torch.bool),
    "rows": lambda x: x.sum(-1, dtype=torch.bool),
    "columns": lambda x: x.sum(0, keepdim=True, dtype=torch.bool),
    "products of rows": lambda x: x.prod(-1, dtype=torch.bool),
    "nansum": lambda x: x.nansum(dtype=torch.bool),
}
INPUTS = {
    "whole": torch.ones(16, 16, dtype=torch.bool),
    "even": torch.eye(16, dtype=torch.bool),
    "numbers": torch.arange(300.0).view(3, 100),
    "with gaps": torch.arange(16.0).view(4, 4)[::2, ::2],
    "nothing": torch.zeros(5, 5, dtype=torch.int64),
    "many": torch.ones(300, 300),
}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_truths(name: str, dynamic: bool) -> None:
    compiled = stoker.compile(SUMS[name], dynamic=dynamic)
    for x in INPUTS.values():
        torch.testing.assert_close(compiled(x), SUMS[name](x))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("asked", [torch.isnan, torch.isinf, torch.isfinite, torch.isreal])
def test_complex_numbers(asked: Callable[[Any], Any], dtype: torch.dtype) -> None:
    parts = (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf)
    z = torch.tensor([complex(a, b) for a, b in itertools.product(parts, parts)], dtype=dtype)
    program = lambda z: (asked(z), asked(z.conj()), torch.where(asked(z), 0, z * 1))  # noqa: E731
    torch.testing.assert_close(stoker.compile(program)(z), program(z), equal_nan=True)
