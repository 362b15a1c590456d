"""Special methods of tensors that are called by name: they do what the statement does that stands for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def sets_a_gradient(x):
    p = x.clone().requires_grad_()
    p.__setattr__("grad", x * 2)
    return p.grad


def sets_a_gradient_by_object(x):
    p = x.clone().requires_grad_()
    object.__setattr__(p, "grad", x * 2)
    return p.grad + 1


def sets_a_gradient_by_class(x):
    p = x.clone().requires_grad_()
    torch.Tensor.__setattr__(p, "grad", x * 3)
    return p.grad


def deletes_a_gradient(x):
    p = x.clone().requires_grad_()
    p.grad = x * 2
    p.__delattr__("grad")
    return p.grad


def sets_another_attribute(x):
    y = x * 2
    y.__setattr__("tag", 5)
    return y + y.tag, y.__getattribute__("tag"), y.__getattribute__("shape")


def sets_data(x):
    y = x.clone()
    y.__setattr__("data", x * 3)
    return y


def sets_whether_it_requires_a_gradient(x):
    y = x.clone()
    y.__setattr__("requires_grad", True)
    return y.requires_grad, (y * 2).requires_grad


def deletes_what_is_not_there(x):
    (x * 2).__delattr__("tag")


def deletes_what_was_set(x):
    y = x * 2
    y.tag = 3
    y.__delattr__("tag")
    return y, hasattr(y, "tag")


PROGRAMS = [
    sets_a_gradient, sets_a_gradient_by_object, sets_a_gradient_by_class, deletes_a_gradient, sets_another_attribute, sets_data,
    sets_whether_it_requires_a_gradient, deletes_what_is_not_there, deletes_what_was_set,
]  # fmt: skip


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error)
    parts = found if isinstance(found, tuple) else (found,)
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in parts]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_attributes(program, backend):
    x = torch.arange(3.0)
    assert outcome(stoker.compile(program, backend=backend), x) == outcome(program, x)


@pytest.mark.parametrize(
    "value",
    [torch.tensor(2), torch.tensor([3]), torch.tensor(True), torch.tensor(2.0), torch.tensor([1, 2]), torch.tensor(1j)],
)
def test_index(value):
    def by_name(x):
        return (x * 1 if x.dtype != torch.bool else x & True).__index__()

    def of_a_list(x):
        return [10, 20, 30, 40][x]

    for program in (by_name, of_a_list):
        assert outcome(stoker.compile(program, backend="eager"), value) == outcome(program, value)
