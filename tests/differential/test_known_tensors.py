"""Tensors of one element that a program makes of plain numbers: their content is known, so that sizes and branches made of it are no
breaks. What is written to with data is known no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

Tensor = torch.Tensor


def _chunks(x: Tensor) -> Tensor:
    count = torch.div(x.shape[0], 2, rounding_mode="trunc")
    return x.view(count, -1) * (count - 1) + x.new_zeros((count + 1, 1))[:1]


def _branch(x: Tensor) -> Tensor:
    count = torch.tensor(3)
    if count * 2 > 4 and not (count == 0).item():
        x = x + 1
    return x * count


def _places(x: Tensor) -> Any:
    rows = [x, x * 2, x * 3]
    for _ in range(torch.tensor(2)):
        x = x + rows[torch.as_tensor(-1)]
    return x, len("abcd"[torch.tensor([1]) : torch.tensor(3)])


def _written(x: Tensor) -> Tensor:
    total = torch.zeros(())
    total += 1
    total = total + x.sum()
    return x * total


def _written_by_data(x: Tensor) -> Any:
    count = torch.full((), 2)
    before = count.item()
    count.add_(x.long().abs().sum())
    return x * count, before, count * 2


def _sliced(x: Tensor) -> Tensor:
    first = torch.ones(1, dtype=torch.long) * 2
    return x[first.item() :] + first.squeeze() - torch.arange(1)


def _floats(x: Tensor) -> Any:
    scale = torch.tensor(2.0).sqrt() / torch.mul(2, 3)
    return x * float(scale), x.reshape(int(scale * 0) + 2, -1), scale


def _types(x: Tensor) -> Any:
    ratio = torch.true_divide(7, 2)
    return x * ratio.item(), ratio.to(torch.int32).item(), torch.add(True, 2).item() + x


def _returned(x: Tensor) -> Any:
    count = torch.floor_divide(x.numel(), 3)
    return count, x.flatten()[: int(count)]


PROGRAMS: list[Callable[[Tensor], Any]] = [
    _chunks,
    _branch,
    _places,
    _written,
    _written_by_data,
    _sliced,
    _floats,
    _types,
    _returned,
]


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph(program: Callable[..., Any], backend: str) -> None:
    compiled = stoker.compile(
        program, backend=backend, fullgraph=True, dynamic=False
    )  # what is known are plain numbers
    for rows in (4, 4, 6, 8):
        x = torch.arange(rows * 3.0).reshape(rows, 3) / 7
        torch.testing.assert_close(compiled(x), program(x))


def test_what_is_drawn_is_not_known() -> None:
    def program(x: Tensor) -> Any:
        drawn = torch.rand(())
        return x * drawn, torch.ones((drawn * 5).long().item())

    compiled = stoker.compile(program, fullgraph=True)
    for seed in range(4):
        found = []
        for run in (compiled, program):
            torch.manual_seed(seed)
            found.append(run(torch.ones(2)))
        torch.testing.assert_close(*found)


def test_a_program_without_inputs_reads_data() -> None:
    def program() -> Any:
        drawn = torch.rand(6)
        return drawn[drawn > 0.5] * 2, drawn.argmax().item()

    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for seed in range(4):
        found = []
        for run in (compiled, program):
            torch.manual_seed(seed)
            found.append(run())
        torch.testing.assert_close(*found)
    assert not stoker.events("as captured")
