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


def _view_before(x):
    part = x[0, -1:]
    with torch.no_grad():
        x.t_()
    return part * 2


def _element_after(x):
    with torch.no_grad():
        x.t_()
    return x[0, -1] * 2


def _element_before(x):
    part = x[0, -1]
    with torch.no_grad():
        x.transpose_(0, 1)
    return part * x


def _row_of_a_squeezed(x):
    with torch.no_grad():
        x.squeeze_(0)
    return x[0] * 2


def _of_an_unsqueezed(x):
    with torch.no_grad():
        x.unsqueeze_(0)
    return x[0, 0] * 2


def _of_a_temporary(x):
    y = x * 2
    row = y[0]
    with torch.no_grad():
        y.t_()
    return row.sum() * y


def _a_view_itself(x):
    flat = x.view(-1)
    with torch.no_grad():
        flat.unsqueeze_(0)
    return flat * flat


def _there_and_back(x):
    with torch.no_grad():
        x.t_()
        x.t_()
    return x * x


def _strided_anew(x):
    with torch.no_grad():
        x.as_strided_((x.numel(),), (1,))
    return x[0] * x


UNSEEN = [
    _view_before, _element_after, _element_before, _row_of_a_squeezed, _of_an_unsqueezed, _of_a_temporary, _a_view_itself,
    _there_and_back, _strided_anew,
]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("sizes", [(2, 3), (1, 3), (3, 1), (3, 3), (1, 1)])
@pytest.mark.parametrize("program", UNSEEN)
def test_moved_where_autograd_does_not_look(program: Callable[..., Any], sizes: tuple[int, ...], backend: str) -> None:
    def run(function: Callable[..., Any]) -> Any:
        x = torch.arange(1.0, 1 + sizes[0] * sizes[1]).reshape(sizes).requires_grad_()
        result = function(x)
        try:
            result.sum().backward()
        except RuntimeError as error:
            return error
        strides = None if x.grad is None else x.grad.stride()
        return result.detach(), result.stride(), x.detach(), x.stride(), x.grad, strides

    mine, other = run(stoker.compile(program, backend=backend)), run(program)
    if isinstance(other, RuntimeError):
        assert isinstance(mine, RuntimeError) and str(mine) == str(other)
    else:
        torch.testing.assert_close(mine, other, rtol=0, atol=0)
