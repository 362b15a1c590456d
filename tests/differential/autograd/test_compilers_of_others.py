"""Back ends out of two compilers (`stoker.aot`): what they return takes its inputs one by one, or in a list, as torch's own do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def plain(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return module.forward


def itself(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return module


def boxed(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    def call(arguments: list[Any]) -> Any:
        taken = list(arguments)
        arguments.clear()
        return module(*taken)

    call._boxed_call = True  # type: ignore[attr-defined]  # torch's name for the convention
    return call


def interpreted(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return torch.fx.Interpreter(module).run


COMPILERS = {"plain": plain, "itself": itself, "boxed": boxed, "interpreted": interpreted}


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x * y).sin(), (x + y).exp()


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y.mul_(2)
    return (x * y.detach()).cos()


def drawn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5) * y


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", [several, written, drawn], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backward", COMPILERS)
@pytest.mark.parametrize("forward", COMPILERS)
def test_compilers(forward: str, backward: str, program: Callable[..., Any], grad: bool, autocast: bool) -> None:
    def observed(function: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 6).requires_grad_(grad)
        y = torch.linspace(0, 2, 6)
        with torch.autocast("cpu", enabled=autocast):
            found = function(x, y)
        results = found if isinstance(found, tuple) else (found,)
        gradients = torch.autograd.grad(sum(r.sum() for r in results), x) if grad else ()
        return results, gradients, y

    backend = stoker.aot(COMPILERS[forward], COMPILERS[backward])
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(observed(compiled), observed(program))
