"""Operators that refuse negative indices do so in kernels, too; those that count them from the end still do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

X, PLACES, ONE = torch.arange(12.0).view(4, 3), torch.tensor([[0, -1, 1]]), torch.ones(1, 3)
REFUSE: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i: torch.gather(x, 0, i) + 1,
    "scatter": lambda x, i: x.scatter(0, i, ONE) + 1,
    "scatter_add": lambda x, i: x.scatter_add(0, i, ONE) + 1,
    "index_select": lambda x, i: x.index_select(0, i[0]) + 1,
    "index_add": lambda x, i: x.index_add(0, i[0], torch.ones(3, 3)) + 1,
    "index_copy": lambda x, i: x.index_copy(0, i[0], torch.ones(3, 3)) + 1,
    "embedding": lambda x, i: F.embedding(i, x) + 1,
}
COUNT: dict[str, Callable[..., Any]] = {
    "index": lambda x, i: x[i[0]] + 1,
    "index_put": lambda x, i: torch.index_put(x, (i[0],), torch.ones(3, 3)) + 1,
    "index_fill": lambda x, i: x.index_fill(0, i[0], 5.0) + 1,
}


@pytest.mark.parametrize("name", REFUSE)
def test_refused(name: str) -> None:
    program = REFUSE[name]
    compiled = stoker.compile(program)
    good = PLACES.abs()
    torch.testing.assert_close(compiled(X, good), program(X, good))
    for wrong in (PLACES, PLACES.abs() * 9):
        with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
            program(X, wrong)
        with pytest.raises(IndexError, match="out of range"):
            compiled(X, wrong)


@pytest.mark.parametrize("name", COUNT)
def test_counted_from_the_end(name: str) -> None:
    program = COUNT[name]
    torch.testing.assert_close(stoker.compile(program)(X, PLACES), program(X, PLACES))
