"""Is it a parameter, or a buffer? Of tensors of every class, also of those that act below autograd, and when that changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import stoker


class Plain(torch.Tensor):
    """A subclass with nothing of its own."""


class Through(torch.Tensor):
    """It sees each function of torch."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Below(torch.Tensor):
    """It holds a tensor, and acts below autograd."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, requires_grad=held.requires_grad)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map(lambda a: a.held if isinstance(a, cls) else a, (args, kwargs or {}))
        made = func(*plain[0], **plain[1])
        return cls(made) if isinstance(made, torch.Tensor) else made


MADE: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(2, 2),
    "a subclass": lambda: torch.ones(2, 2).as_subclass(Plain),
    "a subclass that overrides functions": lambda: torch.ones(2, 2).as_subclass(Through),
    "a subclass below autograd": lambda: Below(torch.ones(2, 2)),
}
CLASSES = (nn.Parameter, nn.Buffer, nn.UninitializedParameter, torch.Tensor, (int, nn.Parameter))


def kinds(x):
    return [isinstance(x, classes) for classes in CLASSES]


@pytest.mark.parametrize("kind", MADE)
def test_what_it_is(kind: str) -> None:
    layer = nn.Linear(2, 2)

    def of_a_module():
        return "a parameter" if isinstance(layer.weight, nn.Parameter) else "a tensor"

    layer.weight = nn.Parameter(MADE[kind]())
    assert stoker.compile(of_a_module)() == of_a_module() == "a parameter"
    compiled = stoker.compile(kinds)
    for x in (MADE[kind](), nn.Parameter(MADE[kind]()), nn.Buffer(MADE[kind]())):
        assert compiled(x) == kinds(x)


def test_a_tensor_that_becomes_a_parameter() -> None:
    compiled = stoker.compile(kinds)
    x = Below(torch.ones(2, 2))
    before = compiled(x)
    x._is_param = True
    assert before == [False, False, False, True, False]
    assert compiled(x) == kinds(x) == [True, False, False, True, True]
