"""Powers with fixed exponents: bit for bit as eager, special values included."""

from __future__ import annotations

import math

import pytest
import torch

import stoker

VALUES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, 1e38, 2.5, -2.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("exponent", [0.5, 2, 3, -1, -2, 0, 1])
def test_power(exponent: float, dtype: torch.dtype) -> None:
    x = torch.tensor(VALUES, dtype=torch.float64).to(dtype)
    expected, found = x.pow(exponent), stoker.compile(lambda x: x.pow(exponent))(x)
    assert torch.equal(expected.isnan(), found.isnan())
    assert torch.equal(expected.nan_to_num(), found.nan_to_num())
    assert torch.equal(expected.signbit()[~expected.isnan()], found.signbit()[~found.isnan()])
