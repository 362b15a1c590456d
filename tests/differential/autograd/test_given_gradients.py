"""Gradients that the user hands to a compiled graph, and what it hands on: batches, views, tensors without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.functional import hessian, jacobian

import stoker


def product(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).cumsum(0) * x


def pair(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * y, (x + y).exp()


def test_jacobians_in_one_go() -> None:
    x, y = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(jacobian(stoker.compile(product), x, vectorize=True), jacobian(product, x))
    got, want = jacobian(stoker.compile(pair), (x, y), vectorize=True), jacobian(pair, (x, y))
    torch.testing.assert_close(got, want)


def test_hessian_in_one_go() -> None:
    x, compiled = torch.randn(3), stoker.compile(product)
    got = hessian(lambda x: compiled(x).sum(), x, vectorize=True)
    torch.testing.assert_close(got, hessian(lambda x: product(x).sum(), x))


@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients(create_graph: bool) -> None:
    x = torch.randn(4, requires_grad=True)

    def run(f: Callable[..., Any]) -> list[torch.Tensor]:
        given = torch.eye(4)[:3]
        (g,) = torch.autograd.grad(f(x), x, given, is_grads_batched=True, create_graph=create_graph)
        return [g, *(torch.autograd.grad(g.pow(2).sum(), x) if create_graph else ())]

    torch.testing.assert_close(run(stoker.compile(product)), run(product))


def test_gradients_under_vmap() -> None:
    x = torch.randn(4, requires_grad=True)

    def run(f: Callable[..., Any]) -> Any:
        y = f(x)
        return torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.eye(4))

    torch.testing.assert_close(run(stoker.compile(product)), run(product))


def test_randomness_is_drawn_once_for_a_batch() -> None:
    x = torch.ones(8, requires_grad=True)
    y = stoker.compile(lambda x: torch.nn.functional.dropout(x, 0.5) * x)(x)
    (g,) = torch.autograd.grad(y, x, torch.eye(8), is_grads_batched=True)
    torch.testing.assert_close(g, torch.diag(2 * y.detach()))


def test_tensors_without_memory() -> None:
    zeros = torch._efficientzerotensor(3, 4)
    compiled = stoker.compile(lambda x: x * 2 + 1)
    torch.testing.assert_close(compiled(zeros), torch.ones(3, 4))
    torch.testing.assert_close(compiled(zeros.t()), torch.ones(4, 3))
    x = torch.randn(3, 4, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(x), x, zeros)
    torch.testing.assert_close(g, torch.zeros(3, 4))


SUMS: list[Callable[..., torch.Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a * 2 + b * 2,
    lambda a, b: a + b.expand(3, 3)[0],
    lambda a, b: (a + 1) - (b - 1),
]


@pytest.mark.parametrize("f", SUMS)
def test_gradients_share_memory_only_where_eagers_do(f: Callable[..., torch.Tensor]) -> None:
    def run(f: Callable[..., torch.Tensor]) -> Any:
        a, b = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        given = torch.ones(3)
        first, second = torch.autograd.grad(f(a, b), (a, b), given)
        shared = first is second, first is given
        for scale in (1.0, 10.0):
            y = f(a, b) * scale
            y.backward(given, retain_graph=True)
            y.backward(given)
        return shared, a.grad, b.grad, given

    torch.testing.assert_close(run(stoker.compile(f)), run(f))


def test_a_gradient_laid_out_otherwise_for_what_the_backward_computes_ahead() -> None:
    """The backward of `cumprod` looks at its input alone, which the forward does for it: a retrace has no such node there."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.movedim(1, 0).cumprod(0).movedim(0, 1)

    weights = torch.arange(12.0).reshape(4, 3)
    found = []
    for function in (program, stoker.compile(program, backend="aot_eager")):
        x = torch.linspace(0.5, 1.5, 12).reshape(4, 3).requires_grad_()
        found.append(torch.autograd.grad((function(x) * weights).sum(), x)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("shape", [(8,), (2, 3)])
def test_gradients_in_batches_of_torch_func(shape: tuple[int, ...]) -> None:
    def jacobian(f: Callable[..., torch.Tensor]) -> torch.Tensor:
        torch.manual_seed(0)
        x = torch.randn(shape, requires_grad=True)
        y = f(x)
        one = lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0]  # noqa: E731
        return torch.vmap(one)(torch.eye(y.numel()).view(-1, *shape))

    for program in (lambda x: x.sin() * x, lambda x: torch.nn.functional.dropout(x, 0.5) * x):
        torch.testing.assert_close(jacobian(stoker.compile(program)), jacobian(program))


def _dual(pull_back: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with torch.autograd.forward_ad.dual_level():
        given = torch.autograd.forward_ad.make_dual(torch.ones(4), torch.arange(4.0))
        return tuple(torch.autograd.forward_ad.unpack_dual(pull_back(given)))


GIVEN: dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor]], Any]] = {
    "grad": lambda pull: torch.func.grad(lambda v: (pull(v) * v).sum())(torch.arange(4.0)),
    "vjp": lambda pull: torch.func.vjp(pull, torch.ones(4))[1](torch.arange(4.0)),
    "jvp": lambda pull: torch.func.jvp(pull, (torch.ones(4),), (torch.arange(4.0),)),
    "jacrev": lambda pull: torch.func.jacrev(pull)(torch.ones(4)),
    "jacfwd": lambda pull: torch.func.jacfwd(pull)(torch.ones(4)),
    "grad of vmap": lambda pull: torch.func.grad(lambda v: torch.func.vmap(pull)(v).sum())(torch.eye(4)),
    "functionalize": lambda pull: torch.func.functionalize(pull)(torch.ones(4)),
    "dual numbers": _dual,
    "zeros without memory": lambda pull: pull(torch._efficientzerotensor((4,))),
    "negated": lambda pull: pull(torch._neg_view(torch.ones(4))),
}


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("how", GIVEN)
def test_gradients_of_transforms(how: str, backend: str) -> None:
    x = torch.linspace(-1, 2, 4, requires_grad=True)

    def run(f: Callable[..., Any]) -> Any:
        y = f(x)
        return GIVEN[how](lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])

    torch.testing.assert_close(run(stoker.compile(product, backend=backend)), run(product))
