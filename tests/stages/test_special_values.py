"""Numbers at the edge of what there is: infinities, zeros with signs, variances of one element; as eager."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_gelu(dtype: torch.dtype) -> None:
    """Where nothing is left of a negative number, its sign is."""
    x = torch.tensor([*VALUES, -7.0, -40.0, -1e3], dtype=torch.float64).to(dtype)
    got, want = stoker.compile(lambda x: F.gelu(x))(x), F.gelu(x)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert torch.equal(got.signbit()[~got.isnan()], want.signbit()[~want.isnan()])


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounded_quotients_of_half_precision(dtype: torch.dtype, mode: str) -> None:
    """Eager rounds the quotient by a tensor to its type first, and that by a number not: 1000 / 1.5 is 668 in bfloat16."""
    torch.manual_seed(0)
    a, b = (torch.randn(200) * 1000).to(dtype), (torch.randn(200) * 3).to(dtype)

    def quotients(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.div(x, y, rounding_mode=mode) for x, y in ((a, b), (a, 1.5), (a[:, None], b[:5]), (900, b)))

    for got, want in zip(stoker.compile(quotients)(a, b), quotients(a, b), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("program", [lambda x: x.var(0, correction=0), lambda x: torch.var_mean(x, -1, keepdim=True)])
def test_variance_of_a_number(program: Any) -> None:
    x = torch.tensor(3.0)
    torch.testing.assert_close(stoker.compile(program)(x), program(x), equal_nan=True)


ZEROS = [
    lambda x: x.clamp(max=-0.0),
    lambda x: x.clamp(min=0.0),
    lambda x: x.clamp(0.0, 6.0),
    torch.nn.functional.relu6,
    torch.nn.functional.hardtanh,
    torch.relu,
    torch.tanh,
    torch.sin,
    torch.expm1,
    torch.log1p,
    lambda x: x * 1 + x,
    lambda x: x - 0,
    torch.neg,
    lambda x: torch.fmax(x, -x),
    lambda x: torch.fmin(x, -x),
]


@pytest.mark.parametrize("number", range(len(ZEROS)))
def test_zeros_have_signs(number: int) -> None:
    f, x = ZEROS[number], torch.tensor([0.0, -0.0, 1.0, -1.0]).repeat(10)
    got, want = stoker.compile(f)(x), f(x)
    torch.testing.assert_close(got, want)
    assert torch.equal(got.signbit(), want.signbit())
