"""Backwards of registered operators that write to what others see: an input, a result, the gradient they are given, a tensor from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

LIBRARY = f"stoker_{__name__.replace('.', '_')}"
OUTSIDE = torch.zeros(3)


def _nothing(ctx: Any, gradient: torch.Tensor) -> None:
    """Only local memory is written."""
    (gradient * 2).zero_()


def _an_input(ctx: Any, gradient: torch.Tensor) -> None:
    ctx.other.mul_(3)


def _a_view_of_an_input(ctx: Any, gradient: torch.Tensor) -> None:
    ctx.other[1:].zero_()


def _the_result(ctx: Any, gradient: torch.Tensor) -> None:
    ctx.made.detach().add_(7)


def _the_gradient(ctx: Any, gradient: torch.Tensor) -> None:
    gradient.mul_(2)


def _outside(ctx: Any, gradient: torch.Tensor) -> None:
    OUTSIDE.add_(1)


WRITES: dict[str, Callable[[Any, torch.Tensor], None]] = {
    "nothing": _nothing,
    "an input": _an_input,
    "a view of an input": _a_view_of_an_input,
    "the result": _the_result,
    "the gradient": _the_gradient,
    "a tensor from outside": _outside,
}


def _operator(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    @torch.library.custom_op(f"{LIBRARY}::{name.replace(' ', '_')}", mutates_args=())
    def scaled(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x * 2

    def setup(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.other, ctx.made = inputs[1], output

    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        with torch.no_grad():
            WRITES[name](ctx, gradient)
        return gradient * 2, None

    scaled.register_fake(lambda x, other: torch.empty_like(x))
    scaled.register_autograd(backward, setup_context=setup)
    return scaled


OPERATORS = {name: _operator(name) for name in WRITES}


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("name", WRITES)
def test_backwards_that_write(name: str, backend: str) -> None:
    def program(x: torch.Tensor, other: torch.Tensor, third: torch.Tensor) -> Any:
        third.mul_(5)
        made = OPERATORS[name](x, other)
        return made, made + third

    def observed(function: Callable[..., Any]) -> Any:
        OUTSIDE.zero_()
        seen = []
        for _ in range(2):
            x, other, third = torch.arange(3.0, requires_grad=True), torch.ones(3), torch.ones(3)
            made, y = function(x, other, third)
            given = torch.full((3,), 0.5)
            before = [t.detach().clone() for t in (x, other, third, made, y)]
            y.backward(given)
            seen.append((before, x.grad, other, third, made.detach(), y.detach(), given, OUTSIDE.clone()))
        return seen

    torch.testing.assert_close(observed(stoker.compile(program, backend=backend)), observed(program))


def test_what_is_written_inside_is_compiled() -> None:
    stoker.reset()
    compiled = stoker.compile(lambda x, other: OPERATORS["nothing"](x, other) + 1)
    compiled(torch.ones(3, requires_grad=True), torch.ones(3)).sum().backward()
    assert not stoker.events("as captured")


def _tagging(where: str) -> type[torch.autograd.Function]:
    class Tagging(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.x, made = x, x * 2
            if where == "an input":
                x.tag = 5  # type: ignore[attr-defined]  # what is tested
            if where == "a result":
                made.tag = 6  # type: ignore[attr-defined]  # what is tested
            return made

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            if where == "an input, backward":
                ctx.x.tag = 7
            return gradient * 2

    return Tagging


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("where", ["an input", "a result", "an input, backward", "nothing"])
def test_attributes_of_tensors(where: str, backend: str) -> None:
    function = _tagging(where)

    def program(x: torch.Tensor) -> Any:
        return function.apply(x) + 0, function.apply(x)

    def observed(run: Callable[..., Any]) -> Any:
        x = torch.ones(3, requires_grad=True)
        y, z = run(x)
        y.sum().backward()
        return x.grad.tolist(), vars(x), vars(z)  # type: ignore[union-attr]  # there is one

    assert observed(stoker.compile(program, backend=backend)) == observed(program)
