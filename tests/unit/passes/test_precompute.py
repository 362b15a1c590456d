"""What depends on no input is computed once, within bounds; what loops compute as fast stays in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.log import collecting
from stoker.passes import precompute as module_of
from stoker.passes.precompute import precompute


def rotary(x: Any) -> Any:
    frequency = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
    angle = torch.outer(torch.arange(5).float(), frequency)
    return x * angle.cos().repeat(1, 2) + x.flip(-1) * angle.sin().repeat(1, 2)


def test_a_table_is_computed_once(functional: Any, operators: Any) -> None:
    x = torch.randn(5, 8)
    module = functional(rotary, x)
    assert precompute(module) == 2
    module.graph.eliminate_dead_code()
    assert "sin.default" not in operators(module) and "mul.Tensor" in operators(module)
    compiled = stoker.compile(rotary)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), rotary(x))


def test_a_mask_stays_in_loops(functional: Any) -> None:
    def causal(x: Any) -> Any:
        return torch.where(torch.arange(6)[:, None] >= torch.arange(6), x, float("-inf"))

    assert precompute(functional(causal, torch.randn(6, 6))) == 0


def test_an_output_is_not_the_constant() -> None:
    def program(x: Any) -> Any:
        table = torch.arange(4).float().cos()
        return table, x + table

    compiled, x = stoker.compile(program), torch.randn(4)
    first, _ = compiled(x)
    first.zero_()
    again, total = compiled(x)
    torch.testing.assert_close(again, torch.arange(4).float().cos())
    torch.testing.assert_close(total, program(x)[1])


@pytest.mark.parametrize(("largest", "most", "count"), [(4, 1 << 20, 0), (1 << 20, 20, 1), (1 << 20, 1 << 20, 2)])
def test_memory_is_bounded(functional: Any, monkeypatch: Any, largest: int, most: int, count: int) -> None:
    monkeypatch.setattr(module_of, "LARGEST_BYTES", largest)
    monkeypatch.setattr(module_of, "MOST_BYTES", most)
    program = lambda x: x + torch.arange(4.0).cos() * 2 + x * torch.arange(4.0).sin()  # noqa: E731
    assert precompute(functional(program, torch.randn(4))) == count


def test_what_a_program_closed_over_is_no_constant() -> None:
    held = torch.ones(3)
    program = lambda x: x + held.cos()  # noqa: E731
    compiled, x = stoker.compile(program), torch.zeros(3)
    torch.testing.assert_close(compiled(x), program(x))
    held.fill_(2)
    torch.testing.assert_close(compiled(x), program(x))


def test_random_numbers_are_drawn_each_time() -> None:
    compiled = stoker.compile(lambda x: x + torch.rand(3).cos())
    x = torch.zeros(3)
    assert not torch.equal(compiled(x), compiled(x))


def test_what_a_program_makes_of_numbers_is_a_constant() -> None:
    def program(x: Any) -> Any:
        scale = torch.sqrt(torch.tensor(x.shape[-1], dtype=torch.float) * 3)
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).exp()
        return x / scale + table.sum() * torch.as_tensor(2.5)

    compiled, x = stoker.compile(program), torch.randn(2, 2)
    events: list[Any] = []
    with collecting(events):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), program(x))
    assert any("depends on no input (2)" in (e.reason or "") for e in events if e.kind == "improved")


def test_numbers_that_are_written_or_returned() -> None:
    def program(x: Any) -> Any:
        counts = torch.tensor([1.0, 2.0])
        counts += x
        fresh = torch.tensor([5, 6])
        return counts * 2, fresh, torch.tensor(3.0).sin()

    compiled, x = stoker.compile(program), torch.ones(2)
    for _ in range(3):
        found = compiled(x)
        for mine, eager in zip(found, program(x), strict=True):
            torch.testing.assert_close(mine, eager)
            mine.zero_()


def test_arrays_of_the_program_are_no_numbers() -> None:
    array = np.array([1.0, 2.0])

    def program(x: Any) -> Any:
        return x * torch.as_tensor(array).sin(), x + torch.tensor(array).cos()

    compiled, x = stoker.compile(program), torch.ones(2, dtype=torch.float64)
    for number in range(3):
        array[0] = number
        for mine, eager in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(mine, eager)


def test_small_values_come_first(functional: Any, operators: Any, monkeypatch: Any) -> None:
    """A number is not left to the plan because a table before it was too large."""
    monkeypatch.setattr(module_of, "MOST_BYTES", 100)

    def program(x: Any) -> Any:
        return (x + torch.arange(32.0).cos()) / torch.arange(3.0, 4.0).sqrt()

    module = functional(program, torch.randn(32))
    assert precompute(module) == 1
    module.graph.eliminate_dead_code()
    assert "sqrt.default" not in operators(module) and "cos.default" in operators(module)
