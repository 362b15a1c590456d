"""Branch, Loop and Scan over callables, as plans call them."""

from __future__ import annotations

import pytest
import torch

from stoker import _C


def test_a_branch_calls_one_of_two() -> None:
    branch = _C.Branch(lambda x: (x + 1,), lambda x: (x - 1,))
    assert branch(torch.tensor(True), torch.tensor(3.0))[0] == 4
    assert branch(torch.tensor([0]), torch.tensor(3.0))[0] == 2


def test_a_loop_runs_while_its_condition_holds() -> None:
    loop = _C.Loop(lambda i, a, n: (i < n,), lambda i, a, n: (i + 1, a * 2), 2)
    count, value = loop(torch.tensor(0), torch.tensor(1.0), torch.tensor(5))
    assert count == 5 and value == 32


def test_a_loop_that_never_runs_gives_copies() -> None:
    given = torch.ones(2)
    (found,) = _C.Loop(lambda a: (torch.tensor(False),), lambda a: (a,), 1)(given)
    assert torch.equal(found, given) and found.data_ptr() != given.data_ptr()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_carries_and_stacks(backwards: bool) -> None:
    scan = _C.Scan(lambda c, x, k: (c + x, c * k), 1, 1, backwards)
    rows = torch.arange(6.0).reshape(3, 2)
    last, found = scan(torch.zeros(2), rows, 10)
    expected, carried = [torch.zeros(2)] * 3, torch.zeros(2)
    for index in (2, 1, 0) if backwards else (0, 1, 2):
        expected[index], carried = carried * 10, carried + rows[index]
    assert torch.equal(last, carried) and torch.equal(found, torch.stack(expected))


def test_what_is_raised_inside_comes_out() -> None:
    def fails(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise KeyError("inside")

    true = torch.tensor(True)
    for call in (
        lambda: _C.Branch(fails, fails)(true),
        lambda: _C.Loop(lambda a: (true,), fails, 1)(true),
        lambda: _C.Scan(fails, 0, 1, False)(torch.ones(2)),
    ):
        with pytest.raises(KeyError, match="inside"):
            call()


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError):
        _C.Branch(lambda: (), lambda: ())(True)
    with pytest.raises(TypeError):
        _C.Scan(lambda: (), 1, 1, False)(torch.ones(2))
