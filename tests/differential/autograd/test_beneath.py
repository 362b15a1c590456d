"""Results that are computed from each other: who looks at the gradient of one sees what comes through the others, as in eager."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

Program = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]


def two(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = (x * w).sin()
    return h, (h * h * w).sum(-1)


def chain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = torch.tanh(x * w)
    second = first @ w.t()
    third = second.exp() + first.sum()
    return third, first, second, (third * w.sum()).mean()


def apart(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x.cos()
    return h, w * 2, (h * w).sum(), (x + w).prod()


def written(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x * w
    before = h * 3
    h += x
    h.mul_(2)
    return h, h.square().sum(-1) + before.sum()


def views(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = (x * w).exp()
    return h, h.t()[1:] * 3, h[0].sum()


def singular(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = (x - x.detach()).abs().sqrt()  # its derivative is infinite
    return h, h + w


PROGRAMS: dict[str, Program] = {
    "two": two, "chain": chain, "apart": apart, "written": written, "views": views, "singular": singular,
}  # fmt: skip


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, w = (torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return x, w


Outcome = tuple[Any, ...]


def retained(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    for result in results:
        result.retain_grad()
    results[-1].sum().backward()
    return tuple(r.grad for r in results)


def hooked(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    seen: dict[int, torch.Tensor] = {}
    for number, result in enumerate(results):
        result.register_hook(lambda g, number=number: seen.update({number: g.clone()}))
    sum(r.sum() for r in results).backward()
    return tuple(seen.get(n) for n in range(len(results)))


def changed(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    for number, result in enumerate(results[:-1]):
        result.register_hook(lambda g, number=number: g * (number + 2))
    (results[-1].sum() + results[0].sum()).backward()
    return ()


def first_alone(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    results[0].retain_grad()
    sum(r.sum() for r in results[1:]).backward()
    return (results[0].grad,)


def asked(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    return torch.autograd.grad(results[-1].sum(), results[:-1], allow_unused=True)


def asked_with_inputs(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    return torch.autograd.grad(results[-1].sum(), (*results[:-1], x, w), allow_unused=True)


def retained_graph(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    results[0].retain_grad()
    results[-1].sum().backward(retain_graph=True)
    results[-1].sum().backward()
    return (results[0].grad,)


def twice(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    wanted = (results[0], x, w)
    once = torch.autograd.grad(results[-1].sum(), wanted, create_graph=True, allow_unused=True)
    total = sum(g.square().sum() for g in once if g is not None)
    return (*once, *torch.autograd.grad(total, (x, w), allow_unused=True))


def removed(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    results[0].register_hook(lambda g: g * 100).remove()
    results[-1].sum().backward()
    return ()


def nobody(results: tuple[torch.Tensor, ...], x: torch.Tensor, w: torch.Tensor) -> Outcome:
    sum(r.sum() for r in results).backward()
    return ()


LOOKS = [retained, hooked, changed, first_alone, asked, asked_with_inputs, retained_graph, twice, removed, nobody]


def run(program: Program, look: Callable[..., Outcome]) -> Outcome:
    x, w = inputs()
    results = program(x, w)
    return (*look(results, x, w), x.grad, w.grad)


@pytest.mark.parametrize("backend", ["stoker", "aot_eager"])
@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_results(name: str, look: Callable[..., Outcome], backend: str) -> None:
    if look is twice and name == "singular":
        pytest.skip("its second derivative is nowhere a number")
    theirs = run(PROGRAMS[name], look)
    ours = run(stoker.compile(PROGRAMS[name], backend=backend, fullgraph=True), look)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


class Features(torch.nn.Module):
    """As models whose maps of activations are explained by their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.relu = torch.nn.ReLU(inplace=True)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.relu(self.norm(self.first(x)))
        return features, self.last(F.dropout(features, 0.3).mean((2, 3)))


@pytest.mark.parametrize("backend", ["stoker", "aot_eager"])
def test_models_with_dropout_and_statistics(backend: str) -> None:
    def gradients(compiled: bool) -> Outcome:
        torch.manual_seed(3)
        model = Features()
        call = stoker.compile(model, backend=backend) if compiled else model
        x = torch.randn(2, 3, 6, 6)
        features, scores = call(x)
        (once,) = torch.autograd.grad(scores[:, 1].sum(), features, retain_graph=True)
        features.retain_grad()
        scores.sum().backward()
        return once, features.grad, *(p.grad for p in model.parameters()), model.norm.running_mean, torch.rand(2)

    torch.testing.assert_close(gradients(True), gradients(False))


def test_what_cannot_be_told_apart_is_refused_with_words() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x * 2
        view = h[1:]
        h.add_(x)
        return h, view.exp().sum() + h.sum()

    x = torch.ones(3, requires_grad=True)
    h, z = stoker.compile(program)(x)
    h.retain_grad()
    with pytest.raises(RuntimeError, match="wrote to that result in place"):
        z.sum().backward()


def test_nothing_is_kept_alive() -> None:
    class Held:
        pass

    call = stoker.compile(two)
    x, w = inputs()
    h, y = call(x, w)
    held = Held()
    h.grad_fn.metadata["held"] = held
    y.grad_fn.metadata["held"] = held
    gone = weakref.ref(held)
    torch.autograd.grad(y.sum(), h, retain_graph=True)
    del h, y, held
    gc.collect()
    assert gone() is None
