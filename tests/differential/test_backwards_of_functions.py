"""What autograd hands to the backward of an `autograd.Function`, and when it is called: as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function

import stoker

ONE_GRAPH: dict[str, Callable[..., Any]] = {}
ANY: dict[str, Callable[..., Any]] = {}


def one_graph(function: Any) -> Any:
    ONE_GRAPH[function.__name__] = ANY[function.__name__] = function
    return function


def any_graphs(function: Any) -> Any:
    ANY[function.__name__] = function
    return function


class WithMask(Function):
    """An output that has no gradient: its tangent is None, or zeros."""

    @staticmethod
    def forward(x, materialize):
        return x**3, x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.set_materialize_grads(inputs[1])
        ctx.mark_non_differentiable(output[1])
        ctx.materialize = inputs[1]

    @staticmethod
    def backward(ctx, g, of_mask):
        (x,) = ctx.saved_tensors
        assert (of_mask is not None) == ctx.materialize
        return 3 * x * x * g * (1 if of_mask is None else 2), None


@one_graph
def a_tangent_that_is_none(x, y):
    cube, mask = WithMask.apply(x, False)
    return cube * mask + y


@one_graph
def a_tangent_of_zeros(x, y):
    cube, mask = WithMask.apply(x, True)
    return cube * mask + y


class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, a, b):
        return None if a is None else a * 2, None if b is None else b * 3


@one_graph
def one_of_two_is_used(x, y):
    return Pair.apply(x, y)[1] * 2


@one_graph
def both_are_used(x, y):
    return Pair.apply(x, y)


class Listed(Function):
    """A list is no tuple of tensors: nothing in it has a history."""

    @staticmethod
    def forward(ctx, x):
        return [x * 2, x.detach()]

    @staticmethod
    def backward(ctx, g):
        return g * 2


@one_graph
def a_list(x, y):
    return Listed.apply(x)[0] + y


class Exponential(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Exponential.apply(x)


class Sine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Cosine.apply(x)


class Cosine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * Sine.apply(x)


@one_graph
def applies_itself(x, y):
    return Exponential.apply(x * y)


@one_graph
def apply_each_other(x, y):
    return Sine.apply(x) * Cosine.apply(y)


@one_graph
def differentiated_inside(x, y):
    value = Sine.apply(x) * Exponential.apply(y)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y, create_graph=True)
    return first, second


class Applied(Function):
    """A function or a class among the arguments, also deep inside."""

    @staticmethod
    def forward(ctx, x, function, settings):
        ctx.settings = settings
        return function(x)

    @staticmethod
    def backward(ctx, g):
        return g * (2 if ctx.settings["kind"] is nn.Linear else 3) * len(ctx.settings["others"]), None, None


@one_graph
def functions_and_classes_as_arguments(x, y):
    return Applied.apply(x, torch.sin, {"kind": nn.Linear, "others": [torch.cos, len]}) + Applied.apply(
        y, torch.tanh, {"kind": nn.Conv2d, "others": (abs,)}
    )


class Broken(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("there is none")


@any_graphs
def a_backward_that_raises(x, y):
    return Broken.apply(x) + y


class Asserting(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 2

    @staticmethod
    def backward(ctx, a, b):
        assert b is None, "the second is in use"
        return a * 2, None


@any_graphs
def a_backward_that_believes_one_is_unused(x, y):
    return Asserting.apply(x, y)[0]


@any_graphs
def a_backward_that_finds_one_in_use(x, y):
    return Asserting.apply(x, y)


def outcome(function: Any) -> list[Any]:
    """Results, gradients, and what was raised at which moment, of two calls."""
    torch.manual_seed(0)
    seen: list[Any] = []
    for _ in range(2):
        inputs = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
        found = torch.utils._pytree.tree_leaves(function(*inputs))
        seen.append([t.detach() for t in found])
        try:
            sum((t * torch.arange(12.0).reshape(3, 4)).sum() for t in found if t.requires_grad).backward()
        except (ValueError, AssertionError) as error:
            seen.append(repr(error))
        seen.append([x.grad for x in inputs])
    return seen


def second_gradient(function: Any) -> list[Any]:
    x, y = (torch.linspace(0.1, 1, 12).reshape(3, 4).requires_grad_() for _ in range(2))
    (first,) = torch.autograd.grad(function(x, y).sum(), x, create_graph=True)
    return [first.detach(), *torch.autograd.grad(first.square().sum(), [x, y])]


def same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            same(a, b)
    elif isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    else:
        assert mine == theirs


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("name", ANY)
def test_a_program(name: str, backend: str) -> None:
    function = ANY[name]
    compiled = stoker.compile(function, backend=backend, fullgraph=name in ONE_GRAPH)
    same(outcome(compiled), outcome(function))


@pytest.mark.parametrize("function", [applies_itself, apply_each_other])
def test_differentiated_twice_from_outside(function: Any) -> None:
    same(second_gradient(stoker.compile(function, fullgraph=True)), second_gradient(function))


class Ignoring(Function):
    """A backward that looks at one tangent alone."""

    @staticmethod
    def forward(ctx, x, y):
        return x * 2, y * 3, x + y

    @staticmethod
    def backward(ctx, a, b, c):
        return a * 2, None


class Counting(Function):
    """One that writes to an argument, which is a result of its own."""

    @staticmethod
    def forward(ctx, x, count):
        count.add_(1)
        ctx.mark_dirty(count)
        return x * count.sum(), count

    @staticmethod
    def backward(ctx, g, of_count):
        return g * 2, None


def three(x, y):
    return Ignoring.apply(x, y)


def counted(x, count):
    return Counting.apply(x, count.detach())[0] + 1


def signs(x, y):
    return x * 2, y.sign(), (y * 0).floor()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("function", [three, signs])
def test_tangents_that_nobody_reads_need_not_come(function: Any, used: tuple[int, ...], dynamic: bool | None) -> None:
    compiled = stoker.compile(function, fullgraph=True, dynamic=dynamic)
    for size in (2, 3, 5):
        found = []
        for f in (compiled, function):
            x, y = (torch.ones(size, 4, requires_grad=True) for _ in range(2))
            results = f(x, y)
            gradients = torch.autograd.grad([results[i].sum() for i in used], [x, y], allow_unused=True)
            found.append([torch.zeros(size, 4) if g is None else g for g in gradients])
        torch.testing.assert_close(*found)


class Both(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 2, b * 3


def of_a_function(x, y):
    return Both.apply(x, y)


def of_operators(x, y):
    return x * 2, y * 3


def of_some_of_both(x, y):
    a, b = Both.apply(x, y)
    return a.sin(), b.cos(), x.exp()


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("function", [of_a_function, of_operators, of_some_of_both, both_are_used, apply_each_other])
def test_which_arguments_have_a_gradient(function: Any, used: tuple[int, ...]) -> None:
    """A backward of the user's is given zeros for what did not come, and gives gradients for all; operators are not passed."""
    compiled = stoker.compile(function, fullgraph=True)
    for _ in range(2):
        found = []
        for f in (compiled, function):
            x, y = (torch.ones(2, 4, requires_grad=True) for _ in range(2))
            results = f(x, y)
            results = results if isinstance(results, tuple) else (results, results * 2)
            torch.autograd.backward([results[i].sum() for i in used])
            found.append([x.grad, y.grad])
        same(*found)


def test_a_result_that_was_written_and_is_not_used() -> None:
    found = []
    for function in (stoker.compile(counted), counted):
        x, count = torch.ones(2, requires_grad=True), torch.zeros(2)
        for _ in range(3):
            y = function(x, count)
            y.sum().backward()
        found.append([y.detach(), x.grad, count.detach()])
    torch.testing.assert_close(*found)


class NeedsBoth(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 2, b * 3


class NeedsTheFirst(NeedsBoth):
    @staticmethod
    def backward(ctx, a, b):
        return {True: a}[a is not None] * 2, None if b is None else b * 3


class AsksOfIt(NeedsBoth):
    @staticmethod
    def backward(ctx, a, b):
        return a.neg(), b.neg()


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("function", [NeedsBoth, NeedsTheFirst, AsksOfIt])
@pytest.mark.parametrize("returned", [True, False])
def test_a_backward_that_is_not_made_for_none(returned: bool, function: Any, used: tuple[int, ...]) -> None:
    """Its error is raised when autograd reaches it; there is no defect to report."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        results = function.apply(x, y)
        return results if returned else tuple(results[i].sum() for i in used)

    def outcome(call: Callable[..., Any]) -> list[Any]:
        x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        results = call(x, y)
        try:
            torch.autograd.backward([results[i].sum() for i in used] if returned else results)
        except (TypeError, KeyError, AttributeError) as error:
            return [type(error), str(error)]
        return [None if t.grad is None else t.grad.tolist() for t in (x, y)]

    stoker.log.clear()
    assert outcome(stoker.compile(program)) == outcome(program)
    assert not stoker.events("defect")
