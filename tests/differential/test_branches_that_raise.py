"""Branches on data of which one side only raises: one graph, and eager's error, effects and handlers where that side is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import GraphBreakError


def checks(x, told):
    told.append("before")
    if (x < 0).any():
        told.append("negative")
        raise ValueError(f"negative: {x.min().item():.1f}")
    return x.sqrt()


def asserts(x, told):
    y = x * 2
    assert (y < 10).all(), "too large"
    told.append("after")
    return y


def asserts_by_torch(x, told):
    y = x * 2
    torch._assert((y < 10).all(), f"too large: {y.shape}")
    told.append("after")
    return y


def nested(x, told):
    def validate(value):
        if not torch.isfinite(value).all():
            raise RuntimeError("not finite")
        return value

    told.append("in")
    return validate(x.log()) + 1


def handled(x, told):
    try:
        if x.sum() > 5:
            raise KeyError("large")
        result = x + 1
    except KeyError as error:
        told.append(str(error))
        result = x - 1
    finally:
        told.append("finally")
    return result


def writes(x, told):
    x.add_(1)
    told.append("written")
    if not torch.all(x > 0):
        raise ValueError("still negative")
    x.mul_(2)
    return x + 1


def draws(x, told):
    y = x + torch.rand(3)
    if y.max() > 5:
        raise ValueError("large")
    return y + torch.rand(3)


def chooses_words(x, told):
    if x.min() < 0:
        if x.max() > 3:
            words = "wide"
        else:
            words = "low"
        raise ValueError(words)
    return x


def loops(x, told):
    for limit in (1, 4, 100):
        told.append(limit)
        if x.max() > limit * 50:
            raise OverflowError(limit)
        x = x * 2
    return x


class Raises(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x, told):
        self.calls += 1
        told.append(self.calls)
        if torch._is_any_true(x * self.weight < 0):
            raise ValueError("negative")
        return (x * self.weight).sum()


PROGRAMS = [checks, asserts, asserts_by_torch, nested, handled, writes, draws, chooses_words, loops, Raises]
VALUES = (1.0, -3.0, 2.0, 60.0, -0.5, 1.0)


def _outcomes(function: Callable[..., Any], grad: bool) -> list[Any]:
    found = []
    for value in VALUES:
        torch.manual_seed(3)
        leaf, told = torch.tensor([value, 2.0, 1.0], requires_grad=grad), []
        x = leaf * 1
        version = x._version
        try:
            result = function(x, told)
            gradient = torch.autograd.grad(result.sum(), leaf)[0] if grad else None
            found.append((result.detach(), gradient))
        except (ValueError, AssertionError, RuntimeError, KeyError, OverflowError) as error:
            found.append((type(error).__name__, str(error).splitlines()[0]))
        found.append((x.detach(), x._version - version, told, torch.rand(())))
    return found


def _same(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and torch.allclose(got, want, equal_nan=True)
    if isinstance(want, (list, tuple)):
        return type(got) is type(want) and len(got) == len(want) and all(map(_same, got, want))
    return bool(got == want)


def _mine(graph_module, inputs):
    return graph_module.forward


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker", _mine])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Any, grad: bool, backend: Any) -> None:
    wanted = _outcomes(program() if isinstance(program, type) else program, grad)
    compiled = stoker.compile(program() if isinstance(program, type) else program, backend=backend)
    for got, want in zip(_outcomes(compiled, grad), wanted):
        assert _same(got, want), (got, want)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not writes])
def test_one_graph(program: Any) -> None:
    compiled = stoker.compile(program() if isinstance(program, type) else program, fullgraph=True)
    compiled(torch.ones(3), [])


def both_go_on(x):
    if x.sum() > 3:
        return x + 1
    return x - 1


def test_others_break() -> None:
    compiled = stoker.compile(both_go_on)
    for value in (1.0, 2.0):
        torch.testing.assert_close(compiled(torch.full((3,), value)), both_go_on(torch.full((3,), value)))
    with pytest.raises(GraphBreakError):
        stoker.compile(both_go_on, fullgraph=True)(torch.ones(3))
