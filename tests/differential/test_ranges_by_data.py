"""Ranges of a tensor between numbers that only data tells: read, written, with gradients, in one graph; and errors where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import log

Tensor = torch.Tensor
X = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))


def _pieces(x: Tensor, lengths: Tensor) -> Tensor:
    """One after the other."""
    means, start = [], 0
    for length in lengths.tolist():
        means.append(x[start : start + length].mean(0))
        start = start + length
    return torch.stack(means)


def _every_other(x: Tensor, lengths: Tensor) -> Tensor:
    low, high, _ = lengths.tolist()
    return x[low : low + high : 2].sum(0)


def _joined(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([piece.sin() * n for n, piece in enumerate(x.split(lengths.tolist()))])


def _column(x: Tensor, lengths: Tensor) -> Tensor:
    low, high, _ = lengths.tolist()
    return x[:, low:high] * 2


READ = {"pieces": _pieces, "every other": _every_other, "joined": _joined, "columns": _column}


@pytest.mark.parametrize("name", READ)
def test_gradients_of_ranges(name: str) -> None:
    program = READ[name]
    log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for lengths in ([2, 3, 4], [4, 4, 1], [1, 7, 1], [3, 3, 3]):
        found = []
        for call in (compiled, program):
            x = X.clone().requires_grad_()
            made = call(x, torch.tensor(lengths))
            made.square().sum().backward()
            found.append((made, x.grad))
        torch.testing.assert_close(*found)
    assert len(log.events("captured")) == 1 and not log.events("as captured")


def _a_queue(memory: Tensor, at: Tensor, rows: Tensor) -> None:
    start = int(at)
    memory[start : start + rows.shape[0]] = rows
    at[0] = (start + rows.shape[0]) % memory.shape[0]


def _a_column(memory: Tensor, at: Tensor, rows: Tensor) -> None:
    memory[1:3, at.item() : at.item() + 2] = rows[:, :2]


def _one_row_for_all(memory: Tensor, at: Tensor, rows: Tensor) -> None:
    memory[at.item() :] = rows[:1]


def _a_number(memory: Tensor, at: Tensor, rows: Tensor) -> None:
    memory[: at.item()] = 3.5
    memory[at.item() :, 1:] += 1


WRITTEN = {"a queue": _a_queue, "a column": _a_column, "one row for all": _one_row_for_all, "a number": _a_number}


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", WRITTEN)
def test_writes_to_ranges(name: str, backend: str) -> None:
    """At the end of memory, and behind it, they may not fit."""
    program = WRITTEN[name]
    log.clear()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for start in (0, 2, 1, 3, 7, 8, 9, 12, -3, -1):
        found: list[Any] = []
        for call in (compiled, program):
            memory, at = X[:8].clone(), torch.tensor([start])
            found += [_outcome(call, memory, at, torch.ones(2, 4)), memory, at]
        assert found[0] == found[3], start
        torch.testing.assert_close(found[1:3], found[4:])
    assert len(log.events("captured")) == 1


def _outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except RuntimeError as error:
        return str(error)


DIAGONALS: dict[str, Callable[[Tensor], Tensor]] = {
    "distances": lambda x: torch.cdist(x, x).add(1).fill_diagonal_(torch.inf).min(1)[0],
    "products": lambda x: (x @ x.t()).fill_diagonal_(0.5).softmax(-1),
    "a tall one": lambda x: (x * 2).fill_diagonal_(x.detach().sum().item()),
    "a mask": lambda x: x.sum(1) * torch.ones(len(x), len(x), dtype=torch.bool).fill_diagonal_(False),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_diagonals_of_matrices_that_grow(name: str) -> None:
    """Eager's own way reads them where they lie in memory, which is no place in a graph of other layouts."""
    program = DIAGONALS[name]
    log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for rows in (6, 7, 9, 3):
        found = []
        for call in (compiled, program):
            x = X[:rows].clone().requires_grad_()
            made = call(x)
            made.square().sum().backward()
            found.append((made, x.grad))
        torch.testing.assert_close(*found)
    assert len(log.events("captured")) == 2 and not log.events("backend") and not log.events("as captured")
