"""Leaves whose gradients are the same value, or views of it: each leaf has a gradient of its own, to which later backwards add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stoker

SQUARE = (3, 3)

PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "sum": (lambda x, a, b: x * (a + b), [(3,), (3,)]),
    "sum of rows": (lambda x, a, b: x * (a + b), [(1, 3), (1, 3)]),
    "sum of numbers": (lambda x, a, b: x * (a + b), [(), ()]),
    "three of a kind": (lambda x, a, b, c: (x * (a + b + c)).tanh(), [(3,), (3,), (3,)]),
    "two kinds": (lambda x, a, b, c, d: x * (a + b) + (x + c + d).sin(), [(3,), (3,), (1, 3), (3,)]),
    "another shape": (lambda x, a, b: x * (a + b.view(3)), [(3,), (1, 3)]),
    "transposed": (lambda x, a, b: x * (a + b.t()), [SQUARE, SQUARE]),
    "a part": (lambda x, a, b: x * torch.cat([a[:1] + b, a[1:]]), [SQUARE, (1, 3)]),
    "joined": (lambda x, a, b: x * torch.cat([a, b]), [(1, 3), (2, 3)]),
    "expanded": (lambda x, a, b: x * (a.expand(3, 3) + b.expand(3, 3)), [(3,), (3,)]),
    "difference": (lambda x, a, b: x * (a - b), [(3,), (3,)]),
    "products": (lambda x, a, b: x @ (a + b), [SQUARE, SQUARE]),
    "library views": (lambda x, a, b: (x @ (a + b.t())).cumsum(0), [SQUARE, SQUARE]),
    "complex": (lambda x, a, b: (x * torch.complex(a + b, a * b)).abs(), [(3,), (3,)]),
}
BACKENDS = ["default", "aot_eager"]


def compiled(f: Callable[..., Any], backend: str, **how: Any) -> Callable[..., Any]:
    return stoker.compile(f, **how) if backend == "default" else stoker.compile(f, backend=backend, **how)


def leaves(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def batches() -> list[Tensor]:
    torch.manual_seed(4)
    return [torch.randn(SQUARE) for _ in range(3)]


def truth(f: Callable[..., Any], shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """What eager's gradients add up to, in memory of its own."""
    given = leaves(shapes)
    rounds = [torch.autograd.grad(f(x, *given).square().sum(), given) for x in batches()]
    return [sum(g.clone() for g in of_one) for of_one in zip(*rounds)]  # type: ignore[misc]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_accumulated(name: str, backend: str, dynamic: bool) -> None:
    f, shapes = PROGRAMS[name]
    run, given = compiled(f, backend, dynamic=dynamic), leaves(shapes)
    for x in batches():
        run(x, *given).square().sum().backward()
    torch.testing.assert_close([t.grad for t in given], truth(f, shapes))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_accumulated_by_backward_inside(name: str, backend: str) -> None:
    f, shapes = PROGRAMS[name]
    given = leaves(shapes)

    def step(x: Tensor) -> Tensor:
        loss = f(x, *given).square().sum()
        loss.backward()
        return loss.detach()

    run = compiled(step, backend)
    for x in batches():
        run(x)
    torch.testing.assert_close([t.grad for t in given], truth(f, shapes))


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_between_backwards(name: str) -> None:
    """Clipping and zeroing in place write each gradient once."""
    f, shapes = PROGRAMS[name]

    def train(run: Callable[..., Any]) -> list[Tensor | None]:
        given = leaves(shapes)
        optimizer = torch.optim.SGD(given, lr=0.1, momentum=0.9)
        for x in batches():
            run(x, *given).square().sum().backward()
            torch.nn.utils.clip_grad_value_(given, 0.5)
            for t in given:
                assert t.grad is not None
                t.grad.mul_(0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return [t.detach() for t in given]

    def apart(x: Tensor, *given: Tensor) -> Tensor:
        """Eager itself lets leaves share what views of one gradient look at."""
        return f(x, *(t * 1 for t in given))

    torch.testing.assert_close(train(stoker.compile(f)), train(apart))


def test_asked_for_at_once() -> None:
    """Eager hands out one tensor for both."""
    a, b = leaves([(3,), (3,)])
    f = stoker.compile(PROGRAMS["sum"][0])
    first, second = torch.autograd.grad(f(batches()[0], a, b).sum(), (a, b))
    torch.testing.assert_close(first, second)
    want = torch.autograd.grad(PROGRAMS["sum"][0](batches()[0], a, b).sum(), (a, b))
    torch.testing.assert_close((first, second), want)
    assert (first.data_ptr() == second.data_ptr()) == (want[0].data_ptr() == want[1].data_ptr())
