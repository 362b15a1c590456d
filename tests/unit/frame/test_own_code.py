"""Stoker's own code is run by CPython, also where it compiles while a program runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import stoker
from stoker import log
from stoker.options import Options


@stoker.disable
def apart() -> None:
    """What comes before and what comes after are two graphs."""


def gradients_of_one_result_of_two(w: torch.Tensor) -> Any:
    a, b = (w * 2).sin(), (w * 3).cos()
    apart()
    a.sum().backward()  # the gradient of `b` never comes: a backward is made for that, inside of this call
    return w.grad, b.detach()


def gradients_of_gradients(w: torch.Tensor) -> Any:
    value = (w**3).sum()
    (first,) = torch.autograd.grad(value, w, create_graph=True)
    apart()
    first.square().sum().backward()
    return first.detach(), w.grad


def compiles_inside(w: torch.Tensor) -> Any:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return stoker.compile(inner, backend="eager", options=None)(w.detach()), Options(freezing=True).freezing


def twice_from_outside(w: torch.Tensor) -> Any:
    square = stoker.compile(lambda x: (x * x).sum())
    apart()
    (first,) = torch.autograd.grad(square(w), w, create_graph=True)
    first.square().sum().backward()
    return first.detach(), w.grad


@pytest.mark.parametrize(
    "function", [gradients_of_one_result_of_two, gradients_of_gradients, compiles_inside, twice_from_outside]
)
def test_no_frame_of_ours_is_captured(function: Any) -> None:
    log.clear()
    compiled = stoker.compile(function)
    for _ in range(3):
        found = [f(torch.linspace(0, 1, 4).requires_grad_()) for f in (compiled, function)]
        torch.testing.assert_close(*found)
    here = [event for event in log.events() if event.kind in ("captured", "break", "limit", "recompile")]
    assert here
    for event in here:
        assert "__create_fn__" not in event.subject, event
        assert "/stoker/" not in event.location, event


@dataclasses.dataclass
class Users:
    value: torch.Tensor
    doubled: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.doubled = self.value * 2


def test_generated_methods_of_users_are_captured() -> None:
    log.clear()
    made = stoker.compile(Users.__init__)
    users = Users.__new__(Users)
    made(users, torch.ones(2))
    torch.testing.assert_close(users.doubled, torch.full((2,), 2.0))
    assert [event for event in log.events("captured") if "__init__" in event.subject]
