"""An operator that nobody foretold to raise does, after a kernel has written to an input: the error is eager's, and nothing is written twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.schedule import overwrite
from tests.differential.test_in_place import written_over

SINGULAR, REGULAR = torch.zeros(3, 3), torch.eye(3)


def _inverted(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> Any:
    x.add_(1)
    return torch.linalg.inv(a * x.sum()), w * 3


def _solved(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> Any:
    x.mul_(2).sub_(1)
    return torch.linalg.solve(a * x.sum(), a) * w.sum()


def _factored(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> Any:
    x.copy_(x + w.detach())
    return torch.linalg.cholesky(a * x.sum().abs()) * w.sum()


def _catching(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> Any:
    x.add_(1)
    try:
        return torch.linalg.inv(a * x.sum()), w * 3
    finally:
        w.detach().sum()


def _several(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> Any:
    x[1:].add_(1)
    x[:1].mul_(5)
    y = torch.linalg.inv(a * x.sum())
    return y * w.sum()


PROGRAMS = [_inverted, _solved, _factored, _catching, _several]


@pytest.fixture
def unforetold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operator is known to raise, so that inputs are written as early as they can be."""
    monkeypatch.setattr(overwrite, "operator_raises", lambda operator: False)


def _outcome(f: Callable[..., Any], a: torch.Tensor, grad: bool) -> tuple[Any, ...]:
    x, w = torch.arange(3.0) + 2, torch.ones(3, requires_grad=grad)
    try:
        result = f(x, a, w)
    except Exception as error:
        result = (type(error), str(error))
    return result, x, x._version > 0


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_written_once(f: Callable[..., Any], grad: bool, unforetold: None) -> None:
    compiled = stoker.compile(f)
    for a in (REGULAR, SINGULAR, REGULAR, SINGULAR):
        expected, found = _outcome(f, a, grad), _outcome(compiled, a, grad)
        torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
        assert found[2] == expected[2]
        if a is SINGULAR:
            assert found[0] == expected[0]


def test_inputs_are_written_before_the_error(unforetold: None) -> None:
    """What the tests above rely on."""
    x = torch.ones(3)
    assert written_over(_inverted, x, REGULAR, torch.ones(3))[0] == 1


def test_who_kept_the_input_learns_of_the_write(unforetold: None) -> None:
    compiled = stoker.compile(_inverted)
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    kept = (w * x).sum()
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(x, SINGULAR, torch.ones(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()


def test_memory_that_ends_after_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kind of error it is: here a result that would need all memory of the world."""

    def f(x: torch.Tensor, n: int) -> Any:
        x.add_(1)
        return torch.ones(n).cumsum(0), x * 2

    compiled = stoker.compile(f, dynamic=True)
    for n in (5, 7, 1 << 50):
        expected, found = torch.ones(3), torch.ones(3)
        for call, x in ((f, expected), (compiled, found)):
            try:
                call(x, n)
            except RuntimeError as error:
                assert "allocate memory" in str(error)
        assert found.equal(expected)
