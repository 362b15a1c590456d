"""Generated Triton checks computed indices, but for those that are inside whatever the data is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.stages.interpreted import Interpreted
from tests.stages.test_products import compiled

TABLE, INDEX = torch.randn(40, 24), torch.randint(-40, 40, (40, 24))


def clamped(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, 0, (i * 2).clamp(0, 39))


def by_places(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[(torch.arange(24) + 3)] + i[:24]


def masked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[(i > 0).long()].sum(2)


def by_data(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i]


def almost_clamped(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i.clamp(-40, 39)].sum(2)


@pytest.mark.parametrize(
    ("program", "checked"),
    [(clamped, False), (by_places, False), (masked, False), (by_data, True), (almost_clamped, True)],
)
def test_checks(program: Callable[..., Any], checked: bool) -> None:
    backend = Interpreted()
    (found,) = compiled(program, [TABLE, INDEX], backend)
    torch.testing.assert_close(found, program(TABLE, INDEX))
    assert any("note_outside(" in u.source.split("\ndef stoker")[-1] for u in backend.units) is checked
    assert any(u.watches for u in backend.units) is checked
