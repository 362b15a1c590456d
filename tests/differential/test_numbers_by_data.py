"""Numbers that only data tells as arguments of operators: one graph, and eager's results and errors for other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import log

torch.manual_seed(3)
V, X, IMAGE = torch.randn(12), torch.randn(12, 6), torch.randn(2, 3, 12, 12)

PROGRAMS: dict[str, Callable[[int], Any]] = {
    "topk": lambda n: (V.topk(n), X.topk(n, dim=0, largest=False)),
    "kthvalue": lambda n: V.kthvalue(n),
    "fft": lambda n: (torch.fft.rfft(V, n=n), torch.fft.fft(V[:n])),
    "interpolate": lambda n: (F.interpolate(IMAGE, size=(n, 4)), F.interpolate(IMAGE, size=n, mode="bilinear")),
    "linspace": lambda n: (torch.linspace(-1, 2.5, n), torch.linspace(0.25, 3, steps=n, dtype=torch.float64)),
    "bucketize": lambda n: torch.bucketize(V, torch.linspace(-1, 1, n)),
    "pad": lambda n: (F.pad(V, (0, n)), F.pad(X, (n, 1), value=2.0)),
    "repeat_interleave": lambda n: V.repeat_interleave(n),
    "step": lambda n: V[::n] * 2,
    "conv": lambda n: (F.conv1d(V[None, None, :n], torch.ones(1, 1, 3)), F.conv2d(IMAGE[:, :, :n], torch.ones(2, 3, 3, 3))),
    "pool": lambda n: (F.max_pool2d(IMAGE[:, :, :n], 2), F.avg_pool1d(V[None, :n], 3)),
    "windows": lambda n: V[:n].unfold(0, 3, 1),
    "one_hot": lambda n: F.one_hot(torch.tensor([[1, 2], [2, 0]]), n),
    "multinomial": lambda n: torch.multinomial(V.softmax(0), n),
    "diff": lambda n: V[:n].diff(),
    "pinv": lambda n: torch.linalg.pinv(X[:n]),
    "matrix_exp": lambda n: torch.matrix_exp(torch.eye(n)),
    "lu": lambda n: torch.linalg.lu_factor(torch.eye(n) * 2)[0],
    "divided": lambda n: (V * (1 / n), V[: 12 // n] + 1, X[: 12 % n] * 2, V.lerp(V * 2, 1.0 / n)),
    "inverse": lambda n: (torch.linalg.inv(torch.eye(n) * 2), torch.linalg.cholesky(torch.eye(n) * 4), torch.linalg.det(torch.eye(n))),
    "spectrum": lambda n: (torch.linalg.svdvals(X[:n]), torch.linalg.eigvalsh(X[:n] @ X[:n].t())),
    "solve": lambda n: torch.linalg.solve(torch.eye(n) * 2, X[:n]),
    "gathered": lambda n: (X[[n % 12, 0]], V[[0, n - n // 2]] * 2, X[:, [1, n % 6]]),
    "mask": lambda n: torch.triu(torch.full((n, n), -math.inf), 1),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    log.clear()
    compiled = stoker.compile(lambda n: program(n.item()), backend=backend)
    for n in (5, 7, 4, 9, 6):
        torch.manual_seed(n)
        expected = program(n)
        torch.manual_seed(n)
        torch.testing.assert_close(compiled(torch.tensor(n)), expected, rtol=1e-4, atol=1e-5)
    assert not log.events("break")
    assert len(log.events("captured")) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_unusual_numbers(name: str) -> None:
    """None, one, as many as there are, more, and less than none: what a graph has not assumed, CPython does."""
    program = PROGRAMS[name]
    compiled = stoker.compile(lambda n: program(n.item()), backend="eager")
    for n in (5, 0, 1, 2, 12, 13, 30, -1, -3, 6):
        torch.manual_seed(n)
        try:
            expected = program(n)
        except (RuntimeError, ValueError, IndexError, ArithmeticError) as error:
            expected = type(error), str(error)
        torch.manual_seed(n)
        try:
            found = compiled(torch.tensor(n))
        except (RuntimeError, ValueError, IndexError, ArithmeticError) as error:
            found = type(error), str(error)
        if isinstance(expected, tuple) and isinstance(expected[0], type):
            assert found == expected, n
        else:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_classes_by_a_size() -> None:
    def program(t, x):
        return F.one_hot(t, x.shape[1]) @ x.t().long()

    log.clear()
    compiled = stoker.compile(program, backend="eager", fullgraph=True)
    for classes in (5, 7, 4, 9, 6):
        t, x = torch.tensor([0, 3, 2]), torch.ones(2, classes)
        assert torch.equal(compiled(t, x), program(t, x))
    assert len(log.events("captured")) == 2


SCALED: dict[str, Callable[..., Any]] = {
    "nearest": lambda x, n: F.interpolate(x, scale_factor=n),
    "by lines": lambda x, n: F.interpolate(x, scale_factor=n, mode="bilinear", align_corners=False),
    "one of two": lambda x, n: F.interpolate(x, None, (n, 2.0), "nearest"),
    "a module": lambda x, n: torch.nn.Upsample(scale_factor=n, mode="nearest")(x),
}


@pytest.mark.parametrize("name", SCALED)
def test_images_that_grow_by_an_integer(name: str) -> None:
    program = SCALED[name]
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for n in (2, 3, 5, 4, 1):
        torch.testing.assert_close(compiled(IMAGE, n), program(IMAGE, n))
    assert not log.events("break")


FRACTIONS: dict[str, Callable[..., Any]] = {
    "sums": lambda x, y, a: (
        torch.add(y, x, alpha=a),
        torch.sub(y, x, alpha=a),
        torch.rsub(y, x, alpha=a),
        x.add(x, alpha=a),
        y.sub(x, alpha=a),
    ),
    "products": lambda x, y, a: (torch.addcmul(x, x, y, value=a), torch.addcdiv(y, x, y.abs() + 1, value=a)),
    "between": lambda x, y, a: (torch.lerp(x, y, a), y.lerp(x, a), (x * 2).lerp_(y, a)),
    "logarithms": lambda x, y, a: (torch.xlogy(x, a), torch.xlogy(a, x.abs())),
}


@pytest.mark.parametrize("name", FRACTIONS)
def test_factors_and_shares_are_compiled_with_gradients(name: str) -> None:
    """Formulas of gradients ask whether a factor is 1; the graph must not run as it was captured for that."""
    program = FRACTIONS[name]
    log.clear()
    compiled = stoker.compile(lambda x, y, a: program(x, y, a.item()), fullgraph=True)
    for a in (0.25, 1.0, 0.0, 0.75, -1.5):
        found = []
        for call, number in ((compiled, torch.tensor(a)), (program, a)):
            x = X.clone().requires_grad_()
            made = call(x, X.flip(0), number)
            torch.autograd.backward(made, [torch.ones_like(part) for part in made])
            found.append((made, x.grad))
        torch.testing.assert_close(*found, equal_nan=True)
    assert len(log.events("captured")) == 1 and not log.events("as captured")


def test_checks_say_the_numbers_that_they_refuse() -> None:
    def program(x, count):
        n = count.item()
        torch._check(n < 4, lambda: f"{n} are too many for {x.shape[0]}")
        torch._check(n >= 0, lambda: f"{n} are less than none")
        return x.new_ones(n) + x.sum()

    log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for n in (2, 6, -1, 0, 3):
        found = []
        for call in (compiled, program):
            try:
                found.append(call(V, torch.tensor(n)))
            except RuntimeError as error:
                found.append(str(error))
        assert type(found[0]) is type(found[1])
        assert found[0] == found[1] if n in (6, -1) else torch.allclose(*found)
    assert len(log.events("captured")) == 1


def test_checks_say_numbers_after_a_write_to_a_parameter() -> None:
    """The frame cannot be run again there."""

    def program(w, count):
        w.data.add_(1)
        with torch.no_grad():
            w.mul_(2)
        n = count.item()
        torch._check(n < 4, lambda: f"{n} are too many")
        return w * n

    outcomes = []
    for call in (stoker.compile(program), program):
        w = torch.ones(3, requires_grad=True)
        for n in (2, 6, 3):
            try:
                outcomes.append(call(w, torch.tensor(n)).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
            outcomes.append(w.tolist())
    assert outcomes[:6] == outcomes[6:]
