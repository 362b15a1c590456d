"""Control flow over what only data tells: integers that loops carry, masks and numbers inside branches, gradients through loops that
run as often as data says. Each program against the same program in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_control_flow import Plain, Torch, outcome, same

import stoker
from stoker.errors import GraphBreakError

PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


@program
def counts(f, x, w):
    return f.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + i), (0, x))


@program
def counts_until(f, x, w):
    steps, a = f.while_loop(lambda i, a: a.abs().sum() < 40, lambda i, a: (i + 1, a * 1.5 + i), (0, x.abs() + w.exp()))
    return a * steps, steps


@program
def two_counters(f, x, w):
    def body(i, a, j):
        return i + 2, a.sin() * w + j, j * 2

    return f.while_loop(lambda i, a, j: i + j < 20, body, (0, x, 1))


@program
def counters_in_containers(f, x, w):
    def body(s, a):
        return {"i": s["i"] + 1, "left": (s["left"][0] - 1, s["left"][1] * w)}, a + s["left"][1]

    return f.while_loop(lambda s, a: s["left"][0] > 0, body, ({"i": 0, "left": (3, x)}, w))


@program
def a_counter_as_an_index(f, x, w):
    def body(i, a):
        return i + 1, torch.cat([a[1:], (a[i % 3] * w[i])[None]])

    return f.while_loop(lambda i, a: i < x.shape[0], body, (0, x))


@program
def a_counter_for_a_size(f, x, w):
    steps, a = f.while_loop(lambda i, a: a.sum() < 30, lambda i, a: (i + 1, a + 1), (0, x.abs()))
    return torch.arange(steps) * 2, a + torch.ones(steps).sum()


@program
def never(f, x, w):
    return f.while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * w), (5, x * 2))


@program
def a_gradient_of_what_a_loop_reads(f, x, w):
    return f.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, a * w.cos() + x), (torch.tensor(0), torch.ones(3, 4)))


@program
def a_loop_that_ends_by_its_values(f, x, w):
    return f.while_loop(lambda a, b: a.abs().max() < 50, lambda a, b: (a * 2 + w, b + a.tanh() + 1), (x.abs() + 1, w))


@program
def a_branch_in_a_loop(f, x, w):
    def body(i, a):
        return i + 1, f.cond(a.sum() > 0, lambda: a * w, lambda: a - x)

    return f.while_loop(lambda i, a: i < 3, body, (0, x))


@program
def a_loop_in_a_branch(f, x, w):
    def loop(a):
        return f.while_loop(lambda i, b: i < 3, lambda i, b: (i + 1, b * w + 1), (torch.tensor(0), a))[1]

    return f.cond(x.sum() > 0, loop, lambda a: a.exp(), (x,))


@program
def a_loop_in_a_scan(f, x, w):
    def step(c, e):
        i, c = f.while_loop(lambda i, b: i < 2, lambda i, b: (i + 1, b * e.cos()), (torch.tensor(0), c + e))
        return c, c * 2 + i

    return f.scan(step, w[0] * 1, x)


@program
def chosen_in_a_branch(f, x, w):
    return f.cond(x.sum() > 0, lambda a: a[a > 0.3].sum() * w, lambda a: a[a < -0.3].exp().mean() + w, (x,))


@program
def a_mask_from_outside(f, x, w):
    mask = x > 0
    outside = x[mask].sum()
    inside = f.cond(w.sum() > 0, lambda a: a.masked_fill(mask, 0) + a[mask].sum(), lambda a: a[~mask].sum() * a, (x,))
    return inside + outside, x[mask] * 2


@program
def rows_chosen_outside(f, x, w):
    chosen = x[x > 0.3]
    return f.cond(w.sum() > 0, lambda a: a * 2 + w.sum(), lambda a: a.exp(), (chosen,)) + 1


@program
def places_chosen_outside(f, x, w):
    places = torch.nonzero(x > 0.3)
    return f.cond(w.sum() > 0, lambda a: a * 2, lambda a: a + 1, (places,)).sum(1) * 3


@program
def sizes_from_outside(f, x, w):
    n = torch.nonzero(x > 0).size(0)

    def ones(a):
        return torch.cos(torch.ones(n, 8) + a.sum())

    return f.cond(w.sum() > 0, ones, lambda a: ones(a) * 2, (x,))


@program
def a_loop_over_chosen_rows(f, x, w):
    chosen = torch.zeros(int((x.detach() > 0).sum()), 3) + w.sum()
    return f.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.sin() + w.sum()), (torch.tensor(0), chosen))


@program
def a_number_in_a_branch(f, x, w):
    return f.cond(
        x.sum() > 0, lambda a: a * w.detach().max().item(), lambda a: a - a.detach().long().sum().item(), (x,)
    )


@program
def places_in_a_loop(f, x, w):
    def body(i, a):
        places = (a > i).nonzero()
        return i + 1, a + places.sum() + a[a > 0].sum() / 10

    return f.while_loop(lambda i, a: i < 3, body, (0, x))


def _inputs() -> list[tuple[Any, ...]]:
    torch.manual_seed(0)
    return [(sign * torch.rand(3, 4), torch.randn(3, 4)) for sign in (1, -1, 1)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_a_program(function: Any, backend: str) -> None:
    stoker.log.clear()
    for grad in (False, True):
        compiled = stoker.compile(lambda *args: function(Torch, *args), backend=backend, fullgraph=True)
        for values in _inputs():
            mine, theirs = (outcome(run, values, grad) for run in (compiled, lambda *args: function(Plain, *args)))
            for found in (
                mine,
                theirs,
            ):  # what a function of the program leaves unused has a gradient of zeros, as torch has it
                found[1] = [torch.zeros_like(value) if g is None else g for value, g in zip(values, found[1])]
            same(mine, theirs)
    assert not stoker.events("as captured")


def _looped(f: Any, x: torch.Tensor, steps: int) -> torch.Tensor:
    return f.while_loop(lambda i, a: i < steps, lambda i, a: (i + 1, a * (a + x).sin()), (torch.tensor(0), x.sin()))[1]


def _scanned(f: Any, x: torch.Tensor, steps: int) -> torch.Tensor:
    rows = torch.stack([x * n for n in range(1, steps + 2)])
    last, others = f.scan(lambda c, e: (c * (c + e).sin(), e * c.cos()), x.sin(), rows)
    return last + others.sum(0)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("function", [_looped, _scanned])
def test_gradients_of_gradients(function: Any, steps: int) -> None:
    def penalty(f: Any, x: torch.Tensor) -> torch.Tensor:
        y = function(f, x, steps).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.square().sum().backward()
        return y.detach()

    found = []
    for f in (Plain, Torch):
        x = torch.arange(1.0, 4.0, dtype=torch.float64).requires_grad_()
        run: Any = lambda x, f=f: penalty(f, x)  # noqa: E731
        result = (run if f is Plain else stoker.compile(run, fullgraph=True))(x)
        found.append([result, x.grad])
    same(*found)


REFUSED: list[Callable[..., Any]] = [
    lambda x: Torch.while_loop(lambda s, a: a.sum() < 5, lambda s, a: (s * 0.5, a + 1), (1.0, x)),
    lambda x: Torch.while_loop(lambda s, a: a.sum() < 5, lambda s, a: (s + "a", a + 1), ("a", x)),
    lambda x: torch.cond(x.sum() > 0, lambda a, n: a * n, lambda a, n: a - n, (x, 3)),
    lambda x: torch.cond(x.sum() > 0, lambda a: a[a > 0], lambda a: a[a > 0] * 2, (x,)),
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_torch_refuses_is_a_break(function: Any) -> None:
    with pytest.raises(GraphBreakError):
        stoker.compile(function, fullgraph=True)(torch.ones(3))


def test_what_holds_in_a_branch_need_not_hold_outside() -> None:
    def function(x: torch.Tensor) -> Any:
        def many(a: torch.Tensor) -> torch.Tensor:
            count = a.nonzero().shape[0]
            torch._check(count > 1)
            return a * count

        y = torch.cond(x.sum() > 5, many, lambda a: a - 1, (x,))
        return y, torch.ones(x.nonzero().shape[0])

    compiled = stoker.compile(function, fullgraph=True)
    for x in (torch.tensor([4.0, 3.0]), torch.tensor([0.0, 3.0]), torch.zeros(2)):
        y, ones = compiled(x)
        same(y, x * 2 if x.sum() > 5 else x - 1)
        assert len(ones) == int((x != 0).sum())
