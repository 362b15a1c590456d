"""Tensors of one shape whose strides change from call to call: windows into buffers that grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

EMBEDDING = torch.nn.Embedding(30, 8)


def _matmul(x):
    return (x @ x.mT).softmax(-1)


def _write(x):
    x.mul_(2)
    x[:, 1].add_(1)
    return x.sum(-1)


def _views(x):
    return x[:, 1:], x.t(), x.sin()


def _flattened(x):
    return x.reshape(-1) * 2, x.contiguous().view(-1)


def _strides(x):
    return x * x.stride(0)


PROGRAMS: list[Callable[..., Any]] = [_matmul, _write, _views, _flattened, _strides]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_windows(program: Callable[..., Any], grad: bool, rows: int) -> None:
    compiled = stoker.compile(program)
    stoker.log.clear()

    def run(f: Callable[..., Any], base: torch.Tensor, n: int) -> Any:
        leaf = base.clone().requires_grad_(grad)
        x = (leaf * 1)[:, n - 6 :]
        results = f(x)
        results = results if isinstance(results, tuple) else (results,)
        told = [r.detach().clone() for r in results], [r.stride() for r in results], x.detach().clone()
        if grad:
            sum(r.sum() for r in results).backward()
            return *told, leaf.grad
        return told

    for n in range(8, 20):
        base = torch.randn(rows, n)
        got, want = run(compiled, base, n), run(program, base, n)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]
        torch.testing.assert_close(got[2:], want[2:])
    assert len(stoker.events("recompile")) <= (12 if program is _strides else 2)
    assert program is _strides or not stoker.events("limit")


def test_a_window_of_tokens() -> None:
    compiled = stoker.compile(lambda i: EMBEDDING(i).sum((1, 2)))
    stoker.log.clear()
    with torch.no_grad():
        for rows in (1, 2):
            for n in range(64, 80):
                tokens = torch.randint(0, 30, (rows, n))[:, -64:]
                torch.testing.assert_close(compiled(tokens), EMBEDDING(tokens).sum((1, 2)), rtol=1e-4, atol=1e-4)
    assert len(stoker.events("recompile")) <= 4 and not stoker.events("limit")


def test_strides_of_zero_and_one() -> None:
    compiled = stoker.compile(lambda x: x * 2 + 1)
    for x in (torch.randn(4, 6), torch.randn(4, 9)[:, :6], torch.randn(6).expand(4, 6), torch.randn(6, 4).t()):
        torch.testing.assert_close(compiled(x), x * 2 + 1)
        assert compiled(x).stride() == (x * 2 + 1).stride()


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (torch.nn.BatchNorm1d(3), torch.randn(3, 4).t()),
        (torch.nn.BatchNorm1d(3), torch.randn(2, 5, 3).transpose(1, 2)),
        (torch.nn.BatchNorm2d(4), torch.randn(2, 4, 5, 3).to(memory_format=torch.channels_last)),
        (torch.nn.GroupNorm(2, 4), torch.randn(2, 4, 5, 3).to(memory_format=torch.channels_last)),
        (torch.nn.Softmax(0), torch.randn(3, 4).t()),
    ],
    ids=lambda given: str(list(given.shape)) if isinstance(given, torch.Tensor) else type(given).__name__,
)
@pytest.mark.parametrize("training", [True, False])
def test_strides_of_what_is_taken_apart(module: torch.nn.Module, x: torch.Tensor, training: bool) -> None:
    """Operators that are decomposed give eager's strides with symbolic sizes, too."""
    module.train(training)
    compiled = stoker.compile(module, dynamic=True)
    assert compiled(x).stride() == module(x).stride()
