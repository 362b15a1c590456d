"""Arguments and names that torch and numpy refuse, in code that captured handlers stand in for: the same error, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import stoker

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "text for a truth": lambda x: x.requires_grad_("a"),
    "a number for a truth": lambda x: x.requires_grad_(1),
    "a number by name": lambda x: x.requires_grad_(requires_grad=0),
    "a tensor for a truth": lambda x: (x * 2).requires_grad_(x.sum() > 0),
    "a truth of numpy": lambda x: x.requires_grad_(numpy.bool_(True)),
    "as an attribute": lambda x: setattr(x, "requires_grad", 1),
    "made with a number": lambda x: torch.zeros(2, requires_grad=1),
    "made with text": lambda x: torch.zeros(2, requires_grad="a"),
    "made like another": lambda x: torch.ones_like(x, requires_grad=1),
    "a name of an array": lambda x: x.numpy().nowhere,
    "a name of a number of numpy": lambda x: x.numpy().sum().nowhere,
    "a name of a module": lambda x: nn.Linear(1, 1).nowhere,
    "sizes after a module is made": lambda x: nn.Linear(2, 2)(x),
}


def observed(call: Callable[..., Any]) -> tuple[type, str]:
    with pytest.raises((TypeError, AttributeError, RuntimeError)) as caught:
        call(torch.ones(3))
    return caught.type, str(caught.value)


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_refusals(name: str, backend: str) -> None:
    compiled = stoker.compile(PROGRAMS[name], backend=backend)
    assert observed(compiled) == observed(compiled) == observed(PROGRAMS[name])
