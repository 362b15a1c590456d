"""`x.data = ...` in all its forms: what autograd knows of x stays, and x lies where the new data lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

Program = Callable[[torch.Tensor, torch.Tensor], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
def augmented(w, x):
    w.data -= 0.1 * x.t()
    w.data *= 2
    w.data /= 3
    w.data **= 2
    return (w * w).sum()


@program
def itself(w, x):
    w.data = w.data
    w.data = w.detach()


@program
def through_a_name(w, x):
    d = w.data
    d += x.t()
    w.data = d
    d.mul_(5)
    return d


@program
def by_setattr(w, x):
    setattr(w, "data", w.data.mul_(2))  # noqa: B010


@program
def a_step(w, x):
    loss = (x @ w).relu().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    w.data -= 0.1 * gradient
    return loss.detach()


@program
def a_view_made_after(w, x):
    w.data -= 1
    return w.t()


@program
def a_view_made_before(w, x):
    v = w.t()
    w.data -= 1
    return v


@program
def given_back(w, x):
    w.data -= 1
    return w, w.data


@program
def used_before(w, x):
    y = (w * w).sum()
    w.data -= 1
    return y + w.sum()


@program
def an_intermediate(w, x):
    y = w * 2
    y.data -= 1
    return y, y[0]


@program
def an_intermediate_in_anothers_memory(w, x):
    y, z = w * 2, w.detach() * 3
    y.data = z
    return y, z


@program
def an_intermediate_in_the_memory_of_an_argument(w, x):
    y = w * 2
    y.data = x.t()
    return y, y[0]


@program
def an_intermediate_turned(w, x):
    y = w[:3] * 2
    y.data = y.data.t()
    return y, y[0]


@program
def turned(w, x):
    w.data = w.data.t()


@program
def a_row_of_itself(w, x):
    w.data = w.data[0]


@program
def flattened(w, x):
    w.data = w.data.view(-1)
    return w.detach() * 2


@program
def in_the_memory_of_another(w, x):
    w.data = x.t()
    return w.sum()


@program
def exchanged(w, x):
    a, b = w.data.clone(), x.data
    w.data, x.data = b.t(), a.t()


@program
def without_a_gradient(w, x):
    x.data += 1
    x.data = x.data.t()
    return w * x


@program
def of_another_type(w, x):
    w.data = w.data.bfloat16().float()
    x.data = x.data.double()


@program
def switched_off_and_on(w, x):
    y = w.detach().clone().requires_grad_()
    y.data -= 1
    y.requires_grad = False
    y.data -= 1
    return y.requires_grad, y


@program
def of_a_gradient(w, x):
    leaf = w.detach().clone().requires_grad_()
    (leaf * leaf).sum().backward()
    leaf.grad.data *= 2
    leaf.data -= leaf.grad
    return leaf.detach(), leaf.grad


def seen(function: Program, leaf: bool) -> list[Any]:
    """What one call leaves behind, and the gradients of what it returns."""
    torch.manual_seed(0)
    start = torch.randn(4, 3, requires_grad=True)
    w, x = start if leaf else start * 1, torch.ones(3, 4)
    place = w.data_ptr()
    result = function(w, x)
    results = result if isinstance(result, tuple) else (result,)
    tensors = [t for t in (w, x, *results) if isinstance(t, torch.Tensor)]
    found: list[Any] = [
        w.data_ptr() == place,
        w._version,
        x._version,
        [t for t in results if not isinstance(t, torch.Tensor)],
    ]
    found += [
        (t.requires_grad, t.is_leaf, t.shape, t.stride(), t.dtype, t.detach().clone().contiguous()) for t in tensors
    ]
    memories = [t.untyped_storage().data_ptr() for t in tensors]
    found += [[a == b for a in memories] for b in memories]
    wanted = [t.sum() for t in tensors[2:] if t.requires_grad]
    if wanted:
        found.append(torch.autograd.grad(sum(wanted), start, allow_unused=True))
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "computed"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_in_eager(program: Program, backend: str, leaf: bool) -> None:
    want = seen(program, leaf)
    compiled = stoker.compile(program, backend=backend)
    for _ in range(2):
        got = seen(compiled, leaf)
        assert same(want, got), (want, got)


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
def test_steps_of_a_weight_from_outside(backend: str) -> None:
    def train(wrap: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        w = torch.randn(4, 3, requires_grad=True)

        def step(x: torch.Tensor, rate: float) -> torch.Tensor:
            loss = (x @ w).square().sum()
            loss.backward()
            w.data -= rate * w.grad
            w.grad.zero_()
            return loss.detach()

        run = wrap(step)
        losses = [run(torch.randn(3, 4), 0.01) for _ in range(4)]
        return [losses, w.detach(), w.grad, w.requires_grad, w.is_leaf]

    assert same(train(lambda f: f), train(lambda f: stoker.compile(f, backend=backend)))
