"""Writing to computed places, through every stage: values that meet in one place are combined in the order of the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.pipeline import compile_captured

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def _made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 9, shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_along_a_dimension(agree: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, source, index = _made(dtype, 6, 80), _made(dtype, 5, 70), torch.randint(0, 6, (5, 70))
    once = torch.stack([torch.randperm(6) for _ in range(70)], 1)[:5]
    programs = [
        lambda x, s, i, o: x.scatter_add(0, i, s), lambda x, s, i, o: x.scatter_add(1, i, s), lambda x, s, i, o: x.scatter(0, o, s),
        lambda x, s, i, o: x.t().scatter_add(1, i.t(), s.t()), lambda x, s, i, o: (x.scatter_add(0, i, s) + x).sum(),
        lambda x, s, i, o: x.scatter_reduce(0, i, s, "amax"), lambda x, s, i, o: x.scatter_reduce(1, i, s, "amin"),
    ]  # fmt: skip
    agree(
        programs if dtype is not torch.bool else programs[:3], [x, source, index, once], exact=dtype is not torch.bool
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_in_place_of_what_is_there(agree: Any, dtype: torch.dtype) -> None:
    """Elements that are replaced do not count, and means of those that meet."""
    torch.manual_seed(0)
    x, source, index = _made(dtype, 6, 80), _made(dtype, 5, 70), torch.randint(0, 6, (5, 70))
    kinds = ["sum", "prod", "amax", "amin", *(["mean"] if dtype.is_floating_point else [])]
    programs = [
        lambda x, s, i, k=kind, d=dim, c=counts: x.scatter_reduce(d, i, s, k, include_self=c)
        for kind in kinds
        for dim in (0, 1)
        for counts in (False, *([True] if kind == "mean" else []))
    ]
    agree(programs, [x, source, index], exact=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slices(agree: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, v, i = _made(dtype, 9, 4, 5), _made(dtype, 7, 4, 5), torch.randint(-9, 9, (7,))
    once, pair = torch.randperm(9)[:7], torch.randint(0, 4, (7,))
    programs = [
        lambda x, v, i, o, p: x.index_put((i,), v, accumulate=True), lambda x, v, i, o, p: x.index_put((o,), v),
        lambda x, v, i, o, p: x.index_put((o, p), v[:, 0]), lambda x, v, i, o, p: torch.ops.aten.index_put(x, [None, p], x[:, 0, None] * 1, True),
        lambda x, v, i, o, p: x.index_add(0, p, v), lambda x, v, i, o, p: x.index_copy(0, o, v),
        lambda x, v, i, o, p: x.index_fill(1, p, 1), lambda x, v, i, o, p: torch.diagonal_scatter(x, x[0, :3].t() * 1, 1, 0, 1),
        lambda x, v, i, o, p: x.as_strided_scatter(v[0], (4, 5), (5, 9), 2), lambda x, v, i, o, p: (x * 1).as_strided((3, 2), (7, 3), 4),
    ]  # fmt: skip
    agree(programs if dtype is not torch.bool else programs[1:2], [x, v, i, once, pair])


def test_an_index_outside_is_an_error() -> None:
    def add(x, v, i):  # type: ignore[no-untyped-def]
        return x.index_add(0, i, v)

    x, v = torch.zeros(4, 3), torch.ones(2, 3)
    compiled = compile_captured(torch.fx.symbolic_trace(add), [x, v, torch.tensor([1, 3])])
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(x, v, torch.tensor([1, 4]))


def test_many_threads_add_in_order(agree: Any) -> None:
    """Large enough for threads: they share a loop along which places differ, so sums do not depend on them."""
    torch.manual_seed(0)
    x, v, i = torch.zeros(50, 300), torch.randn(400, 300), torch.randint(0, 50, (400,))
    flat, where = (
        torch.randint(-9, 9, (40000,)).float(),
        torch.randint(0, 100, (40000,)),
    )  # eager adds in no known order
    agree(
        [lambda x, v, i, f, w: x.index_add(0, i, v), lambda x, v, i, f, w: x.view(-1).scatter_add(0, w, f)],
        [x, v, i, flat, where],
    )
