"""Operators that users registered may remember calls: each runs as often as the program says, and in that order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

CALLS: list[float] = []
LIBRARY = f"stoker_{__name__.replace('.', '_')}"
"""Each import has operators of its own: the tool that writes the coverage page imports this module by another name."""


@torch.library.custom_op(f"{LIBRARY}::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(float(x.sum()))
    return x + len(CALLS)


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _counted_backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    return counted(gradient)


counted.register_autograd(_counted_backward)


@torch.library.custom_op(f"{LIBRARY}::last", mutates_args=())
def last(x: torch.Tensor) -> torch.Tensor:
    return x * (CALLS[-1] if CALLS else 0.0)


@last.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _twice(x):
    return counted(x) + counted(x)


def _of_a_constant(x):
    return x + counted(torch.ones(2))


def _unread(x):
    counted(x)
    return x * 2


def _read_between(x):
    first = last(x)
    counted(x)
    second = last(x)
    counted(x * 2)
    return first, second, last(x)


def _made_late(x):
    late = last(x.sin())
    counted(x)
    return late * 3 + last(x.sin())


class _OfAWeight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * counted(self.weight)


def _run(function: Callable[..., Any], grad: bool) -> Any:
    CALLS.clear()
    found = []
    for start in (1.0, 2.0, 1.0):
        x = torch.full((2,), start, requires_grad=grad)
        with torch.set_grad_enabled(grad):
            results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        if grad and any(r.requires_grad for r in results):
            sum(r.sum() for r in results if r.requires_grad).backward()
        found.append(([r.detach().clone() for r in results], x.grad, list(CALLS)))
    return found


DIFFERENTIABLE = [_twice, _of_a_constant, _unread, _OfAWeight]
CASES = [*((p, False) for p in (*DIFFERENTIABLE, _read_between, _made_late)), *((p, True) for p in DIFFERENTIABLE)]
OPTIONS: list[dict[str, Any]] = [{"backend": "eager"}, {"backend": "aot_eager"}, {}, {"options": {"freezing": True}}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("program", "grad"), CASES)
def test_each_call_counts(program: Any, grad: bool, options: dict[str, Any]) -> None:
    function = program() if isinstance(program, type) else program
    torch.testing.assert_close(_run(stoker.compile(function, **options), grad), _run(function, grad))
