"""Two sizes that only data tells meet in one operator: the graph goes on as if they were equal, and eager says what is wrong where
they are not. And an index into a dimension without elements, which fits where it has none either. And operators for which no or one
element is a case of its own: the graph goes on as with more."""

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
    except (RuntimeError, IndexError, ValueError) as error:
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


X = torch.linspace(-1, 1, 28).reshape(7, 4)
MASKS = [torch.tensor(rows).bool() for rows in ([1, 0, 1, 1, 0, 1, 0], [0] * 7, [0, 0, 1, 0, 0, 0, 0], [1] * 7)]
LSTM = torch.nn.LSTM(4, 3)
CHOSEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "attention": lambda r: F.scaled_dot_product_attention(r[None], X[None], X[None]),
    "attention of heads": lambda r: F.scaled_dot_product_attention(
        *[t.view(-1, 2, 2).transpose(0, 1)[None] for t in (r, X, X)]
    ),
    "attention among themselves": lambda r: F.scaled_dot_product_attention(r[None], r[None], r[None]),
    "distances": lambda r: torch.cdist(r, X, p=1.0),
    "tensordot": lambda r: torch.tensordot(r, X, dims=([1], [1])),
    "smallest": lambda r: r.min(),
    "largest of columns": lambda r: r.max(0),
    "place of the largest": lambda r: r.argmax(),
    "median": lambda r: r.median(0),
    "topk": lambda r: r.topk(1, 0),
    "convolution": lambda r: F.conv1d(r.T[None], torch.ones(2, 4, 3), padding=1),
    "batch norm": lambda r: F.batch_norm(r, None, None, training=True),
    "resized": lambda r: F.interpolate(r.T[None], scale_factor=2),
    "LSTM": lambda r: LSTM(r[:, None])[0],
    "views": lambda r: r.view(-1, 2, 2).sum(1) + r.reshape(-1, 4)[:, :2],
    "smallest, then as usual": lambda r: (r - r.min()) / (r.max() - r.min() + 1),
}


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", CHOSEN)
def test_none_and_one_are_cases_of_their_own(name: str, backend: str) -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> Any:
        return CHOSEN[name](x[mask])

    compiled = stoker.compile(program, fullgraph=True, backend=backend)
    for mask in MASKS:
        with torch.no_grad():
            wanted, found = outcome(program, X, mask), outcome(compiled, X, mask)
        assert type(found) is type(wanted)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("name", ["attention", "distances", "smallest", "convolution", "batch norm"])
def test_gradients_of_chosen_rows(name: str) -> None:
    gradients = []
    for compiles in (lambda f: f, lambda f: stoker.compile(f, fullgraph=True)):
        x = X.clone().requires_grad_()
        compiles(lambda x, mask: CHOSEN[name](x[mask]).pow(2).sum())(x, MASKS[0]).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("rows", [2, 1])
@pytest.mark.parametrize("name", ["std", "var", "std of all"])
def test_gradients_that_divide_by_zero(name: str, rows: int) -> None:
    """Of one row there is no deviation: eager's gradient is not a number, and no error."""
    programs = {"std": lambda r: r.std(0), "var": lambda r: r.var(0), "std of all": lambda r: r[:, :1].std()}
    gradients = []
    for compiles in (lambda f: f, lambda f: stoker.compile(f, fullgraph=True)):
        x, mask = X.clone().requires_grad_(), torch.arange(7) < rows
        compiles(lambda x, mask: programs[name](x[mask]).sum())(x, mask).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0], equal_nan=True)
