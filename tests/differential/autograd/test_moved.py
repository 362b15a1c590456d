"""Tensors that are given other sizes in place, or by out=, with their views and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def transposed(x):
    y = x * 2
    y.t_()
    return y, y[1:]


def view_first(x):
    y = x.sin()
    part = y[0]
    y.unsqueeze_(0)
    return y, part


def squeezed(x):
    y = x[None] * 3
    y.squeeze_()
    return y.t(), y


def resized(x):
    y = x.detach() + 1
    part = y[0]
    torch.mul(x.detach().sum(0), 2, out=y)
    return y, part


def resized_to_another_type(x):
    y = torch.zeros(7, dtype=torch.float64)
    torch.mul(x.detach(), 2, out=y)
    return y, x * 2


def _moves_its_input(y, x):
    part = y[1:]
    y.t_()
    return part @ x.t()


def _copies_its_input(y, x):
    copy = torch.zeros_like(y)
    copy.copy_(y)
    y.clamp_(max=0)
    return copy * x


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("program", [_moves_its_input, _copies_its_input])
def test_an_input_that_is_changed_and_kept(program: Callable[..., Any], backend: str) -> None:
    compiled = stoker.compile(program, backend=backend)
    for seed in range(2):
        torch.manual_seed(seed)
        y, x = torch.randn(3, 5), torch.randn(3, 5, requires_grad=True)
        other = y.clone()
        got, want = compiled(y, x), program(other, x)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))
        torch.testing.assert_close(y, other)


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", [transposed, view_first, squeezed, resized, resized_to_another_type])
def test_as_in_eager(program: Callable[..., Any], backend: str) -> None:
    def run(function: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        x = torch.randn(3, 5, requires_grad=True)
        results = function(x)
        total = sum((r.sum() for r in results if r.requires_grad), torch.zeros((), requires_grad=True))
        gradient = torch.autograd.grad(total, x, allow_unused=True)
        return *[(r.detach(), r.dtype, r.stride()) for r in results], gradient

    for got, want in zip(run(stoker.compile(program, backend=backend)), run(program)):
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:]
