"""Several results: gradients of some of them, one after the other, with and without retaining the graph, as in eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import stoker

PROGRAMS: dict[str, Callable[..., Sequence[torch.Tensor]]] = {
    "separate": lambda a, b: (a.exp().sum(), b.exp().sum()),
    "of one leaf": lambda a, b: (a.sin(), a.cos() * b),
    "with a trunk": lambda a, b: ((h := (a * b).exp()).sum(), (h * 2).sin()),
    "nothing saved": lambda a, b: ((h := a + b).sum(), h * 2),
    "infinite": lambda a, b: ((a * b).sum(), (a - a).log()),
    "infinite twice": lambda a, b: ((a * b).sum(), (a * 0).sqrt() * b, (b - 1) / (a - a)),
    "pieces": lambda a, b: torch.cat([a, b]).exp().split(3),
    "views": lambda a, b: ((h := a.exp()), h[1:], b * 2),
}


def _subsets(count: int) -> list[tuple[int, ...]]:
    return [s for size in range(1, count + 1) for s in itertools.combinations(range(count), size)]


def _run(f: Callable[..., Any], steps: Sequence[tuple[int, ...]], retain: bool) -> list[Any]:
    a = torch.tensor([1.0, 2.0, -1.0], requires_grad=True)
    b = torch.tensor([0.5, 1.0, 3.0], requires_grad=True)
    results, told = f(a, b), []
    for chosen in steps:
        try:
            given = [torch.ones_like(results[i]) for i in chosen]
            torch.autograd.backward([results[i] for i in chosen], given, retain_graph=retain)
        except RuntimeError as error:
            return [*told, str(error)[:30]]
        told.append([torch.zeros(0) if t.grad is None else t.grad.clone() for t in (a, b)])
    return told


def _compare(got: list[Any], want: list[Any]) -> None:
    assert [g for g in got if isinstance(g, str)] == [w for w in want if isinstance(w, str)]
    for mine, eager in zip(got, want, strict=True):
        if not isinstance(eager, str):
            torch.testing.assert_close(mine, eager, equal_nan=True)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_after_the_other(name: str, dynamic: bool | None) -> None:
    f = PROGRAMS[name]
    compiled = stoker.compile(f, dynamic=dynamic)
    subsets = _subsets(len(f(torch.ones(3), torch.ones(3))))
    for steps in [*((s,) for s in subsets), *itertools.product(subsets, subsets)]:
        for retain in (False, True):
            _compare(_run(compiled, steps, retain), _run(f, steps, retain))


def test_one_result_as_often_as_eager_allows() -> None:
    for f in (lambda a, b: (a + b).sum(), lambda a, b: (a * b).sum()):
        wrapped = lambda a, b: (f(a, b),)  # noqa: B023, E731
        _compare(_run(stoker.compile(wrapped), [(0,), (0,)], False), _run(wrapped, [(0,), (0,)], False))


def test_a_result_that_is_not_used_costs_nothing() -> None:
    """Its own backward, and that of all results, is never compiled."""

    def pair(x):
        return x.sin().sum(), x.exp()

    x = torch.randn(4, requires_grad=True)
    stoker.log.clear()
    loss, _ = stoker.compile(pair)(x)
    loss.backward()
    assert len(stoker.events("compiled")) == 2
    torch.testing.assert_close(x.grad, x.detach().cos())


WRITABLE: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: (x.exp() * 2).log(),
    lambda x: torch.relu(x) ** 2,
    lambda x: x.sigmoid() * x.softmax(0),
    lambda x: (x + 1) * 3,
    lambda x: x.sin() * x,
    lambda x: torch.nn.functional.gelu(x),
]


@pytest.mark.parametrize("number", range(len(WRITABLE)))
def test_writes_between_forward_and_backward(number: int) -> None:
    """An error where eager saved the input, and none where it saved what it computed."""

    def run(f: Callable[..., Any]) -> Any:
        x = torch.linspace(0.5, 2, 4, requires_grad=True)
        y = f(x).sum()
        with torch.no_grad():
            x.add_(1)
        try:
            y.backward()
        except RuntimeError as error:
            return "inplace" in str(error)
        return x.grad

    got, want = run(stoker.compile(WRITABLE[number])), run(WRITABLE[number])
    assert isinstance(got, bool) == isinstance(want, bool)
    if not isinstance(want, bool):
        torch.testing.assert_close(got, want)
