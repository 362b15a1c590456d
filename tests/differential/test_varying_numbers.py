"""Numbers that differ from call to call: compared, passed on, made into data, without a version for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

X = torch.arange(4.0)
FLOATS = (0.25, 3.5, -1.0, 0.0, -0.0, math.inf, math.nan, 7.25, 1e300, 0.5, 0.75)
INTS = (2, 3, 5, -4, 0, 1, 2**40, 9, 8, 77)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) and a.shape == b.shape
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


PROGRAMS: list[tuple[Callable[..., Any], int]] = [
    (lambda x, k: x * 2 if k > 1.0 else x, 4),
    (lambda x, k: (x + 1, k, [k]) if k else (x, k), 4),
    (lambda x, k: x + 1 if 0 <= k < 5 else x - 1, 5),
    (lambda x, k: x + 1 if k == 0.25 else x - 1 if k != 3.5 else x, 5),
    (lambda x, k: x + 1 if isinstance(k, float) and k is not None else x, 2),
    (lambda x, k: x + 1 if max(k, 1.0) > 2 else x, 8),
]


@pytest.mark.parametrize(("program", "most"), PROGRAMS)
def test_a_float_that_is_compared(program: Callable[..., Any], most: int) -> None:
    graphs: list[Any] = []
    compiled = stoker.compile(program, backend=lambda g, e: graphs.append(g) or g.forward)
    for k in FLOATS * 2:
        assert equal(compiled(X, k), program(X, k)), k
    assert len(graphs) <= most


@pytest.mark.parametrize("program", [lambda x, k: x * k, lambda x, k: x + k * 2, lambda x, k: (x, f"{k:.1f}", hash(k))])
def test_a_float_that_is_used(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program, backend="eager", options={"version_limit": 30})
    for k in FLOATS:
        assert equal(compiled(X, k), program(X, k)), k


def test_the_number_read_at_a_break() -> None:
    graphs: list[Any] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum().item() > 1e6:
            y = y / 2
        return y + 1

    compiled = stoker.compile(program, backend=lambda g, e: graphs.append(g) or g.forward)
    for n in range(12):
        assert torch.equal(compiled(X * n), program(X * n))
    assert torch.equal(compiled(X * 1e7), program(X * 1e7))
    assert len(graphs) <= 4


DATA: list[Callable[..., Any]] = [
    lambda x, t, u: x * torch.tensor([t]),
    lambda x, t, u: torch.tensor(t) + torch.tensor([[t, 3], [u, t * 2]], dtype=torch.float32).sum(),
    lambda x, t, u: torch.tensor((t, u, t + u), device="cpu"),
    lambda x, t, u: torch.tensor([t, u], dtype=torch.float64) / 3,
    lambda x, t, u: torch.tensor([[t], [u]]).expand(2, 3),
]


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program", DATA)
def test_an_int_that_becomes_data(program: Callable[..., Any], backend: str) -> None:
    stoker.log.clear()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for t, u in zip(INTS, INTS[1:]):
        assert equal(compiled(X, t, u), program(X, t, u)), (t, u)
    assert len(stoker.events("captured")) <= 6  # 0 and 1 stand for themselves


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float16, torch.complex64])
def test_other_types_of_data(dtype: torch.dtype) -> None:
    program = lambda x, t: torch.tensor([t, 1], dtype=dtype)  # noqa: E731
    compiled = stoker.compile(program, backend="eager")
    for t in (2, 3, 5):
        assert equal(compiled(X, t), program(X, t))
