"""Memory that a program gives back or takes while it runs, as sharded training does with its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def resize(tensor: torch.Tensor, size_bytes: int) -> None:
    torch.ops.inductor.resize_storage_bytes_(tensor, size_bytes)


def filled(a: torch.Tensor) -> Any:
    resize(a, 32)
    with torch.no_grad():
        a.copy_(torch.ones(8))
    return a + 1


def used_and_given_back(a: torch.Tensor) -> Any:
    y = a.sin() * 2
    resize(a, 0)
    return y + 1


def there_and_back(a: torch.Tensor) -> Any:
    y = a.clone()
    resize(a, 0)
    resize(a, 32)
    a.copy_(y * 2)
    return a.exp()


def by_its_storage(a: torch.Tensor) -> Any:
    a.untyped_storage().resize_(32)
    a.fill_(3)
    return a * 2


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    "filled": (filled, True),
    "used and given back": (used_and_given_back, False),
    "there and back": (there_and_back, False),
    "by its storage": (by_its_storage, True),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_storages_that_change(name: str, backend: str) -> None:
    function, empty = PROGRAMS[name]

    def observed(function: Callable[[torch.Tensor], Any]) -> Any:
        a = torch.linspace(0, 1, 8)
        if empty:
            a.untyped_storage().resize_(0)
        found = function(a)
        size = a.untyped_storage().size()
        return found, size, a.clone() if size else None

    torch.testing.assert_close(observed(stoker.compile(function, backend=backend)), observed(function))
