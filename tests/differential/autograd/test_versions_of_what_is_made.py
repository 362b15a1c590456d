"""How often a tensor that the program makes was written to, as the program asks: `_version` is eager's, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import stoker


def written(x):
    y = x * 2
    before = y._version
    y.add_(1)
    y[0] = 0
    return before, y._version, x.sin()._version


def views(x):
    y = x * 2
    row, flat, cut = y[0], y.view(-1), y.detach()
    row.mul_(3)
    y += 1
    return y._version, row._version, flat._version, cut._version, y.data._version, y.clone()._version


def reshaped(x):
    y = x + 1
    y.t_()
    y.unsqueeze_(0)
    y.requires_grad_()
    return y._version


def filled(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    F.relu(y, inplace=True)
    y.copy_(x)
    torch.nn.init.zeros_(y)
    return y._version, torch.zeros(2)._version, torch.tensor([1.0])._version


def without_grad(x):
    y = x * 2
    with torch.no_grad():
        y.add_(1)
        z = y[0]
        z.zero_()
    y.data.add_(1)
    return y._version, z._version


def several(x):
    a, b = (x * 2).split([1, 2])
    a.add_(1)
    values, places = x.max(0)
    values.zero_()
    return a._version, b._version, values._version, places._version


def lists(x):
    a, b = (x * 2).split([1, 2])
    torch._foreach_add_([a, b], 1)
    return a._version, b._version


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", [written, views, reshaped, filled, without_grad, several])
def test_versions(program: Callable[..., Any], requires_grad: bool, backend: str) -> None:
    if requires_grad and program in (reshaped, filled, several):
        pytest.skip("autograd refuses it")
    x = torch.arange(12.0).reshape(3, 4).requires_grad_(requires_grad)
    found = stoker.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        assert found(x) == program(x)


def test_operators_that_write_to_lists_are_asked_of_eager() -> None:
    """Their fakes do not count."""

    compiled = stoker.compile(lists, backend="eager")
    assert compiled(torch.ones(3, 4)) == lists(torch.ones(3, 4))


def test_versions_of_what_is_given_are_asked_of_eager() -> None:
    def given(x):
        x.add_(1)
        return x._version

    x, y = torch.ones(3), torch.ones(3)
    compiled = stoker.compile(given)
    for _ in range(3):
        assert compiled(x) == given(y)
