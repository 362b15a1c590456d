"""Hooks that captured code puts on leaves from outside: they are there when the call has returned, and for a backward inside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import stoker

Tensor = torch.Tensor


def of_a_closure(x: Tensor, kept: Any) -> Any:
    y = x.sin()
    x.register_hook(lambda g: g + kept.scale)
    return y.sin()


def of_an_object(x: Tensor, kept: Any) -> Any:
    x.register_hook(kept.note)
    return x * 4


def with_a_handle(x: Tensor, kept: Any) -> Any:
    kept.handle = x.register_hook(lambda g: g * 2)
    return x * 3, kept.handle


def taken_away(x: Tensor, kept: Any) -> Any:
    handle = x.register_hook(lambda g: g * 2)
    y = x * x
    handle.remove()
    handle.remove()
    kept.handle = handle
    return y


def taken_away_unseen(x: Tensor, kept: Any) -> Any:
    handle = x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    handle.remove()
    return x * x


def several_in_order(x: Tensor, kept: Any) -> Any:
    for scale in (2, 3):
        x.register_hook(lambda g, scale=scale: g * scale + kept.scale)
    return x.exp()


def after_accumulating(x: Tensor, kept: Any) -> Any:
    x.register_post_accumulate_grad_hook(lambda p: kept.seen.append(p.grad.clone()))
    return x * 3


def before_a_backward_inside(x: Tensor, kept: Any) -> Any:
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: kept.seen.append(g.clone()))
    (x * 3).sum().backward()
    return x.grad.clone(), x * 5


def before_gradients_inside(x: Tensor, kept: Any) -> Any:
    x.register_hook(lambda g: g * 2)
    return torch.autograd.grad((x * 3).sum(), x)[0], x * 2


def with_a_variable_that_changes(x: Tensor, kept: Any) -> Any:
    count = 0

    def hook(g):
        nonlocal count
        count += 1
        kept.seen.append(count)

    x.register_hook(hook)
    count = 10
    return x.exp()


def before_a_call_of_nothing_known(x: Tensor, kept: Any) -> Any:
    x.register_hook(lambda g: g * 2)
    kept.unknown(x)
    return x * 3


def after_a_write(x: Tensor, kept: Any) -> Any:
    with torch.no_grad():
        x.mul_(2)
    x.register_hook(lambda g: g * 7)
    return x * x


def on_a_result_from_outside(x: Tensor, kept: Any) -> Any:
    y = kept.result * 2
    kept.result.register_hook(lambda g: g * 5)
    return y


def on_what_has_no_gradient(x: Tensor, kept: Any) -> Any:
    try:
        kept.scale.register_hook(lambda g: g)
    except RuntimeError as error:
        return str(error), x * 2


def after_accumulating_nothing(x: Tensor, kept: Any) -> Any:
    try:
        kept.result.register_post_accumulate_grad_hook(lambda p: None)
    except RuntimeError as error:
        return str(error), x * 2


PROGRAMS = [
    of_a_closure, of_an_object, with_a_handle, taken_away, taken_away_unseen, several_in_order, after_accumulating,
    before_a_backward_inside, before_gradients_inside, with_a_variable_that_changes, before_a_call_of_nothing_known, after_a_write,
    on_a_result_from_outside, on_what_has_no_gradient, after_accumulating_nothing,
]  # fmt: skip
BROKEN = [before_a_call_of_nothing_known, on_a_result_from_outside, after_accumulating_nothing]


def outcome(function: Any, call: Any) -> list[Any]:
    """What two calls, each with its backward, leave of results, gradients, hooks and what hooks have told."""
    x = torch.arange(3.0).requires_grad_()
    kept = SimpleNamespace(scale=torch.ones(3), seen=[], handle=None, result=x * 1)
    kept.note = lambda g: kept.seen.append(g.clone())
    kept.unknown = stoker.disable(lambda x: kept.seen.append(len(x._backward_hooks or ())))
    found: list[Any] = []
    for _ in range(2):
        made = call(x, kept)
        parts = [part for part in (made if isinstance(made, tuple) else (made,)) if isinstance(part, Tensor)]
        next(part for part in parts if part.requires_grad).sum().backward(retain_graph=True)
        found += [[part.detach().clone() for part in parts], x.grad.clone(), list(kept.seen), kept.handle is None]
        found += [len(x._backward_hooks or ()), len(x._post_accumulate_grad_hooks or ())]
        if kept.handle is not None:
            kept.handle.remove()
            found.append(len(x._backward_hooks or ()))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("function", PROGRAMS)
def test_as_in_eager(function: Any, backend: str) -> None:
    compiled = stoker.compile(function, backend=backend, fullgraph=function not in BROKEN)
    torch.testing.assert_close(outcome(function, compiled), outcome(function, function))


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.handles: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        if not self.handles:
            for parameter in self.linear.parameters():
                self.handles.append(parameter.register_hook(lambda g: g * 10))
        return self.linear(x).relu()


def test_hooks_on_parameters_are_put_once() -> None:
    torch.manual_seed(0)
    plain, given = Scaled(), Scaled()
    given.load_state_dict(plain.state_dict())
    compiled, x = stoker.compile(given, fullgraph=True), torch.randn(4, 3)
    for _ in range(3):
        for model in (plain, compiled):
            model(x).sum().backward()
    for one, other in zip(plain.parameters(), given.parameters()):
        torch.testing.assert_close(one.grad, other.grad)
    assert [len(p._backward_hooks) for p in given.parameters()] == [1, 1]
