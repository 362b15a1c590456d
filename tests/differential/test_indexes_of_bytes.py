"""Masks of bytes: eager warns of them at each call, and so does a compiled function, at the program's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def read(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask] * 2


def written(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[mask] = torch.arange(3.0)
    return y * 2


def observed(call: Callable[..., Any]) -> list[Any]:
    found = []
    for _ in range(3):
        with warnings.catch_warnings(record=True, action="always") as caught:
            result = call(torch.ones(2, 3), torch.tensor([1, 0], dtype=torch.uint8))
        said = [(str(w.message).split("(")[0], w.category, w.filename, w.lineno) for w in caught]
        found.append((result.tolist(), said))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("function", [read, written])
def test_indexes_of_bytes(function: Any, backend: str) -> None:
    assert observed(stoker.compile(function, backend=backend)) == observed(function)
