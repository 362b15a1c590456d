"""Kernels that are built once for drafts that are alike, against kernels that are built for each draft."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stoker
from stoker.schedule import alike, plan
from stoker.schedule.kernel import build


class Checked(alike.Kernels):
    """Builds each kernel, too."""

    calls: list[tuple[Any, Any]] = []

    def build(self, draft: Any, kept: frozenset[str]) -> Any:
        made = super().build(draft, kept)
        self.calls.append((made, build(draft, kept, self.layouts, self.targets[draft.device.type])))
        return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    monkeypatch.setattr(plan, "Kernels", Checked)
    Checked.calls = []
    return Checked.calls


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.silu(self.norm(self.conv(x)))


def rows(x: torch.Tensor) -> Any:
    """Softmax twice, of which the first is given back as well."""
    first = x.softmax(-1)
    return first, (first * 3).softmax(-1), (x * 3).softmax(-1)


def chosen(x: torch.Tensor) -> Any:
    places = torch.tensor([2, 0, 1])
    return x[places] + 1, x[:, places] + 1, x.flip(0)[places] + 1, x.cumsum(0), (x * 2).cumsum(0)


def kinds(x: torch.Tensor) -> Any:
    return x + 1, x.double() + 1, x.bfloat16() + 1, x.t() + 1, -0.0 * x, 0.0 * x, x.sum(0), x.sum(1), (x + 1).sum(0)


@pytest.mark.parametrize("program", [rows, chosen, kinds])
@pytest.mark.parametrize("dynamic", [False, True])
def test_programs(program: Any, dynamic: bool, calls: list[tuple[Any, Any]]) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 5)
    torch.testing.assert_close(stoker.compile(program, dynamic=dynamic)(x), program(x))
    assert calls
    for made, anew in calls:
        assert made == anew


def test_blocks_of_a_network_share_kernels(calls: list[tuple[Any, Any]]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(4) for _ in range(6)))
    x = torch.randn(2, 4, 6, 6)
    stoker.compile(model)(x).square().sum().backward()
    for made, anew in calls:
        assert made == anew
    assert len({id(made.kernel) for made, _ in calls}) * 2 < len(calls)
