"""Two sizes that only data tells meet in one operator: the graph goes on as if they were equal, and eager says what is wrong where
they are not. And an index into a dimension without elements, which fits where it has none either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

A = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0])
SAME, OTHER, ONE, NONE = A * 2, A.neg(), torch.tensor([9.0, -1, -1, -1, -1]), A.abs().neg()
"""Beside `A`: as many positive elements, fewer, one, none."""

TWO: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "masked_fill": lambda a, b: a.masked_fill(b > 4, -1.0),
    "where": lambda a, b: torch.where(a > 1, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "addcmul": lambda a, b: torch.addcmul(a, b, b, value=0.5),
    "atan2": torch.atan2,
    "logical": lambda a, b: (a > 1) & (b > 4),
    "mse_loss": lambda a, b: F.mse_loss(a, b, reduction="sum"),
    "stack": lambda a, b: torch.stack([a, b]),
    "cat": lambda a, b: torch.cat([a[:, None], b[:, None]], 1),
    "product": lambda a, b: a[None] @ b[:, None],
    "outer and mask": lambda a, b: (a[:, None] * a).masked_fill(b[:, None] != b[None], -1e9).softmax(-1),
    "in place": lambda a, b: a.clone().mul_(b).add_(b),
    "clamp": lambda a, b: a.clamp(max=b),
    "copied": lambda a, b: torch.empty_like(a).copy_(b),
}


def positives(program: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: program(x[x > 0], y[y > 0])


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", TWO)
def test_two_sizes(name: str, backend: str) -> None:
    program = positives(TWO[name])
    compiled = stoker.compile(program, fullgraph=True, backend=backend)
    for y in (SAME, OTHER, ONE, NONE, SAME + 1):
        wanted, found = outcome(program, A, y), outcome(compiled, A, y)
        assert type(found) is type(wanted)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            torch.testing.assert_close(found, wanted)


def outcome(program: Callable[..., Any], *args: Any) -> Any:
    try:
        return program(*args)
    except RuntimeError as error:
        return str(error)


def test_packed_sequences() -> None:
    def program(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = x[torch.arange(x.shape[1])[None] < lengths[:, None]]
        segment = torch.arange(x.shape[0]).repeat_interleave(lengths)
        scores = (packed @ packed.t()).masked_fill(segment[:, None] != segment[None], -1e9)
        return scores.softmax(-1) @ packed

    compiled = stoker.compile(program, fullgraph=True)
    for lengths in ([2, 3], [1, 4], [4, 4]):
        given = (torch.randn(2, 4, 3), torch.tensor(lengths))
        torch.testing.assert_close(compiled(*given), program(*given))


EMPTY: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": lambda x: x[x.gt(0).nonzero().squeeze(1)] * 2,
    "where": lambda x: x[torch.where(x > 0)[0]] + 1,
    "rows": lambda x: x[:, None].expand(-1, 3)[x.gt(0).nonzero().squeeze(1)] * 2,
    "mask": lambda x: x[x > 0] * 2,
    "index_select": lambda x: x.index_select(0, x.gt(0).nonzero().squeeze(1)) * 2,
}


@pytest.mark.parametrize("name", EMPTY)
def test_no_elements(name: str) -> None:
    program = EMPTY[name]
    for lengths in ((5, 6, 0), (0, 5, 0), (0,)):
        compiled = stoker.compile(program, fullgraph=True)
        for length in lengths:
            x = torch.randn(length)
            torch.testing.assert_close(compiled(x), program(x))


def test_an_index_into_nothing() -> None:
    def program(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return x[chosen.nonzero().squeeze(1)] * 2

    compiled = stoker.compile(program, fullgraph=True)
    assert compiled(torch.ones(0), torch.zeros(3)).shape == (0,)
    for call in (program, compiled):
        with pytest.raises(IndexError, match="out of bounds for dimension with size 0"):
            call(torch.ones(0), torch.ones(3))
