"""Tensors written into themselves, which eager refuses or does in its order, and by out=, which gives other sizes; their sizes are those
of what a mask chose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def _scattered(y):
    y.scatter_(0, torch.zeros(y.shape[0], dtype=torch.long), y)


def _scattered_to_fixed_places(y):
    y.scatter_(0, torch.zeros(1, dtype=torch.long), y)


def _scatter_added(y):
    y.scatter_add_(0, torch.zeros(1, dtype=torch.long), y)


def _index_added(y):
    y.index_add_(0, torch.arange(y.shape[0]), y)


def _index_copied(y):
    y.index_copy_(0, torch.arange(y.shape[0]), y)


def _put(y):
    y.put_(torch.arange(y.shape[0]), y)


def _masked(y):
    y.masked_scatter_(y > 1, y)


def _shifted(y):
    y[1:].copy_(y[:-1])


def _added_to_its_neighbour(y):
    y[1:].add_(y[:-1])


def _added_to_itself(y):
    y.add_(y)


def _into_an_expanded_one(y):
    y[None].expand(2, -1).add_(1)


def _by_out(y):
    torch.gather(y, 0, torch.arange(y.shape[0]), out=y)


WRITES = [
    _scattered, _scattered_to_fixed_places, _scatter_added, _index_added, _index_copied, _put, _masked, _shifted,
    _added_to_its_neighbour, _added_to_itself, _into_an_expanded_one, _by_out,
]  # fmt: skip
CONTENTS = [[1.0, -2.0, 3.0, 4.0], [-1.0, 5.0], [-1.0, -2.0], [2.0, 3.0, -1.0]]


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
    except RuntimeError as error:
        return str(error)
    return result, result.shape, [a.clone() for a in args], [a.stride() for a in args]


def _agree(program: Callable[..., Any], backend: str, calls: list[tuple[torch.Tensor, ...]]) -> None:
    compiled = stoker.compile(program, backend=backend)
    for args in calls:
        mine, other = _outcome(compiled, *(a.clone() for a in args)), _outcome(program, *(a.clone() for a in args))
        if isinstance(other, str):
            assert mine == other
        else:
            torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("write", WRITES)
def test_into_itself(write: Callable[[torch.Tensor], None], chosen: bool, backend: str) -> None:
    def program(x):
        y = x[x > 0] if chosen else x + 3
        write(y)
        return y * 2

    _agree(program, backend, [(torch.tensor(content),) for content in CONTENTS])


def _sum_out(x, out):
    return torch.add(x[x > 0], 1, out=out)


def _joined_out(x, out):
    chosen = x[x > 0]
    torch.cat([chosen, chosen], out=out)
    return out * 2


def _stacked_out(x, out):
    chosen = x[x > 0]
    torch.stack([chosen, chosen * 2], out=out)
    return out.sum(0)


def _selected_out(x, out):
    return torch.masked_select(x, x > 0, out=out)


def _sine_out(x, out):
    torch.sin(x[x > 0], out=out)
    return out.sum() + out.shape[0]


def _cumulated_out(x, out):
    torch.cumsum(x[x > 0], 0, out=out)
    return out + 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("size", [0, 3, 6, 5])
@pytest.mark.parametrize("program", [_sum_out, _joined_out, _stacked_out, _selected_out, _sine_out, _cumulated_out])
def test_by_out_of_another_size(program: Callable[..., Any], size: int, backend: str) -> None:
    _agree(program, backend, [(torch.tensor(content), torch.zeros(size)) for content in CONTENTS])
