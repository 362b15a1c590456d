"""Numbers from around a branch or a loop, which the functions that `torch.cond` and its kin are given close over: floats that vary or that data
tells, sizes, and numbers computed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop

import stoker

Tensor = torch.Tensor


def _scanned(x: Tensor, a: Any) -> Any:
    return scan(lambda c, row: (c * a + row, c * 2), x.new_zeros(2), x)


def _looped(x: Tensor, a: Any) -> Any:
    return while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c * a + x.shape[0]), (torch.tensor(0), x))[1]


PROGRAMS: dict[str, Callable[[Tensor, Any], Any]] = {
    "cond": lambda x, a: torch.cond(x.sum() > 0, lambda y: y * a, lambda y: y - a, (x,)),
    "cond, computed": lambda x, a: torch.cond(x.sum() > 0, lambda y: y * (a * 2 + 1), lambda y: y - a / 4, (x,)),
    "cond, of a size": lambda x, a: torch.cond(x.sum() > 0, lambda y: y * (x.shape[0] * a), lambda y: y - a, (x,)),
    "scan": _scanned,
    "while_loop": _looped,
    "map": lambda x, a: mapped(lambda row: row.sin() * a, x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("numbers", [(0.5, 0.75, 1.5, 0.1), (2, 3, 4, 7)], ids=["floats", "integers"])
def test_numbers_from_around(name: str, backend: str, numbers: tuple[Any, ...]) -> None:
    """A float was cut to an integer on its second value."""
    program = PROGRAMS[name]
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for rows, a in zip((3, 3, 4, 5), numbers):
        for x in (torch.ones(rows, 2), -torch.ones(rows, 2)):
            expected = stoker.compile(program, backend="eager", dynamic=False)(x, a)
            torch.testing.assert_close(compiled(x, a), expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_compilations_serve_all_floats(name: str) -> None:
    numbers = (0.5, 0.75, 1.5, 0.1, 0.3)
    expected = [stoker.compile(PROGRAMS[name], backend="eager", dynamic=False)(torch.ones(3, 2), a) for a in numbers]
    stoker.log.clear()
    compiled = stoker.compile(PROGRAMS[name], fullgraph=True)
    torch.testing.assert_close([compiled(torch.ones(3, 2), a) for a in numbers], expected)
    assert len(stoker.events("recompile")) == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_branches_with_a_float(sign: int) -> None:
    weight = torch.tensor([0.5, 2.0], requires_grad=True)

    def program(x: Tensor, a: float) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: (y * weight) ** 2 * a, lambda y: (y - a) * weight, (x,)).sum()

    compiled = stoker.compile(program, fullgraph=True)
    for a in (0.5, 0.75, 1.5, 0.1):
        x = torch.full((2,), float(sign))
        expected = a * 2 * weight.detach() if sign > 0 else x - a
        assert torch.allclose(torch.autograd.grad(compiled(x, a), weight)[0], expected)


def test_a_float_that_a_branch_decides_by() -> None:
    program = lambda x, a: torch.cond(x.sum() > 0, lambda y: y * (2 if a > 0.6 else 3), lambda y: y * a, (x,))  # noqa: E731
    compiled = stoker.compile(program, fullgraph=True)
    for a in (0.5, 0.75, 1.5, 0.1):
        assert compiled(torch.ones(2), a).tolist() == [2 if a > 0.6 else 3] * 2


def test_a_float_that_data_tells() -> None:
    def program(x: Tensor, a: Tensor) -> Tensor:
        factor = a.item()
        return torch.cond(x.sum() > 0, lambda y: y * factor, lambda y: y - factor, (x,))

    compiled = stoker.compile(program)
    for a in (0.5, 0.75, -1.5):
        assert compiled(torch.ones(2), torch.tensor(a)).tolist() == [a, a]
        assert compiled(-torch.ones(2), torch.tensor(a)).tolist() == [-1 - a, -1 - a]


def test_a_number_computed_of_two_sizes() -> None:
    def program(x: Tensor, k: int) -> Tensor:
        n = x.shape[0] * k
        return torch.cond(x.sum() > 0, lambda y: y * n, lambda y: y - n, (x,))

    compiled = stoker.compile(program, fullgraph=True)
    for rows, k in ((3, 2), (4, 3), (5, 4), (6, 9)):
        assert compiled(torch.ones(rows), k).tolist() == [rows * k] * rows
        assert compiled(-torch.ones(rows), k).tolist() == [-1 - rows * k] * rows
