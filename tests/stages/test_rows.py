"""Products of one row, and reads at computed places, as generated Triton under its interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from tests.stages.interpreted import in_place_of_the_processor
from tests.stages.test_triton import side_by_side

NEAR = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
PRODUCTS: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, v, b: F.linear(x, w),
    "bias": lambda x, w, v, b: F.linear(x, w, b),
    "gate": lambda x, w, v, b: F.silu(F.linear(x, w)) * F.linear(x, v),
    "behind a norm": lambda x, w, v, b: F.linear(F.rms_norm(x, x.shape[-1:]), w, b) + b,
    "a vector": lambda x, w, v, b: F.linear(x[0], w, b),
    "three dimensions": lambda x, w, v, b: F.linear(x[None], w),
    "a row of more": lambda x, w, v, b: (F.linear(x, w)[:, 1:] * 2, F.linear(x, w)),
}


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("shared", [64, 100, 513])
@pytest.mark.parametrize("name", PRODUCTS)
def test_one_row(name: str, shared: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, w, v = torch.randn(1, shared), torch.randn(40, shared) / 8, torch.randn(40, shared) / 8
    inputs = [t.to(dtype) for t in (x, w, v, torch.randn(40))]
    exact = PRODUCTS[name](*(t.double() for t in inputs))
    truths = exact if isinstance(exact, tuple) else (exact,)
    for (mine, eager), truth in zip(side_by_side(PRODUCTS[name], inputs, None), truths, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (eager.dtype, eager.shape, eager.stride())
        torch.testing.assert_close(mine.double(), truth, rtol=NEAR[dtype], atol=NEAR[dtype])


def test_numbers_that_are_none_in_a_row() -> None:
    w = torch.randn(8, 64)
    w[1, 3], w[2, 5], w[3, 7] = float("nan"), float("inf"), -float("inf")
    for mine, eager in side_by_side(F.linear, [torch.ones(1, 64), w], None):
        torch.testing.assert_close(mine, eager, equal_nan=True)


LEFT: dict[str, Callable[..., Any]] = {
    "several rows": lambda x, w: F.linear(x, w).relu() + 1,
    "a weight that is walked the other way": lambda x, w: (x[:1] @ w.t().contiguous()).relu() + 1,
    "short sums": lambda x, w: (x[:1, :8] @ w[:, :8].t()).relu() + 1,
}


@pytest.mark.parametrize("name", LEFT)
def test_other_products_stay_with_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _library_calls(monkeypatch, LEFT[name]) == 1


def test_what_follows_is_part_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _library_calls(monkeypatch, lambda x, w: F.linear(x[:1], w).relu() + 1) == 0


def _library_calls(monkeypatch: pytest.MonkeyPatch, program: Callable[..., Any]) -> int:
    in_place_of_the_processor(monkeypatch)
    with torch.no_grad():
        stoker.compile(program, options={"packing": False})(torch.randn(3, 64), torch.randn(8, 64))
    (made,) = [event.data for event in stoker.events("compiled")]
    return sum(count for _, count, _ in made.calls)


def test_softmax_of_rows_that_are_looked_up() -> None:
    """Each phase needs the same elements, at places that are checked: values of rows that others share, too."""
    torch.manual_seed(0)
    scores, table = torch.randn(2, 6, 20), torch.randint(0, 9, (6, 20))
    near, far = torch.randn(2, 6, 9), torch.randn(2, 20, 9)

    def program(scores: torch.Tensor, table: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        places = table[None].expand(2, -1, -1)
        other = far.gather(2, places.transpose(1, 2)).transpose(1, 2)
        return torch.softmax(scores + near.gather(2, places) + other, -1)

    for mine, eager in side_by_side(program, [scores, table, near, far], None):
        torch.testing.assert_close(mine, eager)


@pytest.mark.parametrize("length", [40, 200, 3000])
def test_keys_and_values_of_one_query(length: int) -> None:
    """Sums along memory, and across it, in pieces where it is long."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 1, 16), torch.randn(1, 2, length, 16), torch.randn(1, 2, length, 16)

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rows, keys, values = q.view(1, 2, 2, 1, 16), k.unsqueeze(2), v.unsqueeze(2)
        shares = torch.softmax((rows * keys).sum(4), -1).unsqueeze(4)
        return (shares * values).sum(3).half().view(1, 4, 1, 16)

    wanted = F.scaled_dot_product_attention(q, k, v, scale=1.0, enable_gqa=True)
    for mine, eager in side_by_side(program, [q, k, v], None):
        torch.testing.assert_close(mine, eager, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(mine.float(), wanted, rtol=2e-3, atol=2e-3)
