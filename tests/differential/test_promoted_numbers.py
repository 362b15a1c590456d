"""Numbers that are promoted on the way: whole ones to half precision, variances to double precision, norms of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": lambda a, h: a + h,
    "difference": lambda a, h: h - a,
    "product": lambda a, h: a * h,
    "quotient": lambda a, h: a / h,
    "scaled": lambda a, h: torch.add(h, a, alpha=3),
    "equal": lambda a, h: a == h,
    "greater": lambda a, h: a > h,
    "remainder": lambda a, h: torch.fmod(a, h),
    "in place": lambda a, h: h.clone().add_(a),
    "cast": lambda a, h: torch.maximum(a.to(h.dtype), h),
    "chosen": lambda a, h: torch.where(h > 0, a, h),
    "by a number": lambda a, h: h * a[1],
    "with a number": lambda a, h: h + a[0],
}


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("whole", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_numbers_and_half_precision(name: str, whole: torch.dtype, half: torch.dtype) -> None:
    """A whole number is rounded to half precision first, unless it is one number for all."""
    program = PROGRAMS[name]
    a = torch.tensor([2049, 2**31 - 1, 4097, -70000, 7, 300, 257] * 4).to(whole)
    h = torch.tensor([1.0, 0.0, 3.0, -2.0, 0.5, 300.0, 257.0] * 4, dtype=half)
    found, expected = stoker.compile(program, fullgraph=True)(a, h), program(a, h)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


SPREADS: dict[str, Callable[[torch.Tensor], Any]] = {
    "var": lambda x: x.var(0),
    "rows": lambda x: x.var(1, correction=0),
    "std": lambda x: x.std(0),
    "all": lambda x: x.std(),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "var_mean": lambda x: torch.var_mean(x, 0),
}


@pytest.mark.parametrize("name", SPREADS)
def test_spreads_far_from_zero(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 48) + 1e6
    torch.testing.assert_close(stoker.compile(SPREADS[name])(x), SPREADS[name](x.double()), check_dtype=False)


def test_spreads_whose_squares_are_too_large() -> None:
    x = torch.tensor([1e30, -1e30, 3e29])
    torch.testing.assert_close(stoker.compile(torch.std)(x), torch.std(x))


NORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one": lambda x: x[:1].norm(),
    "of nothing but itself": lambda x: x[0].norm(),
    "rows": lambda x: torch.linalg.vector_norm(x[:, None], dim=1),
    "kept": lambda x: torch.linalg.vector_norm(x[:, None], dim=-1, keepdim=True),
    "none": lambda x: torch.linalg.vector_norm(x[:, None], 0, dim=1),
    "normalized": lambda x: F.normalize(x[:, None], dim=1),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_one_number(name: str) -> None:
    x = torch.tensor([1e30, -1e-30, 0.0, -2.0])
    torch.testing.assert_close(stoker.compile(NORMS[name])(x), NORMS[name](x))


MIXED: dict[str, tuple[Callable[..., torch.Tensor], torch.dtype, torch.dtype]] = {
    "addcmul of half precision": (lambda x, y: torch.addcmul(x, y, y), torch.bfloat16, torch.float32),
    "addcmul with half precision": (lambda x, y: torch.addcmul(x, y, y), torch.float32, torch.bfloat16),
    "addcmul of large numbers": (
        lambda x, y: torch.addcmul(x * 1e38, x * 1e38, y, value=8),
        torch.float32,
        torch.float64,
    ),
    "addcdiv": (lambda x, y: torch.addcdiv(x, y, y + 2), torch.float32, torch.float64),
    "a loss of logits": (F.binary_cross_entropy_with_logits, torch.float64, torch.float32),
    "a loss of each": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, y, pos_weight=y, reduction="none"),
        torch.float64,
        torch.float32,
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_several_types(name: str) -> None:
    program, first, second = MIXED[name]
    torch.manual_seed(0)
    x, y = torch.rand(9).to(first), torch.rand(9).to(second)
    torch.testing.assert_close(stoker.compile(program)(x, y), program(x, y))
