"""Gradients that are infinite or no number reach the elements that they reach in eager, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import stoker

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda x: x.max(),
    "min": lambda x: torch.min(x) * 2,
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "several": lambda x: x.max() + x.min(),
    "of what is computed": lambda x: (x * 2).t().max(),
    "nothing but ties": lambda x: (x * 0).max(),
    "of no number": lambda x: (x / (x - x)).max(),
    "amax": lambda x: x.amax(),
    "amax of rows": lambda x: x.amax(1).sum(),
    "max of rows": lambda x: x.max(1).values.sum(),
    "median of rows": lambda x: x.median(1).values.sum(),
    "aminmax": lambda x: x.aminmax().max,
    "a mask of its own": lambda x: ((x > 2) * x).sum(),
    "largest norm": lambda x: x.norm(float("inf")),
    "sorted": lambda x: x.sort().values[0, 0],
    "clamped": lambda x: x.clamp(1.5, 2.5).sum(),
    "chosen": lambda x: torch.where(x > 2, x, 0).sum(),
    "pooled": lambda x: F.max_pool1d(x, 2).sum(),
    "rectified": lambda x: F.relu(x - 2).sum(),
}


@pytest.mark.parametrize("gradient", [1.0, 0.0, float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str, gradient: float) -> None:
    def of(f: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        x = torch.tensor([[3.0, 1.0, 2.0], [2.0, 3.0, 0.5]], requires_grad=True)
        y = f(x)
        y.backward(torch.full_like(y, gradient))
        assert x.grad is not None
        return x.grad

    torch.testing.assert_close(of(stoker.compile(PROGRAMS[name])), of(PROGRAMS[name]), equal_nan=True)


def test_a_gradient_inside() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(x.max() / 0, x)[0]

    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    torch.testing.assert_close(stoker.compile(step)(x), step(x), equal_nan=True)
