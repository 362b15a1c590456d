"""What each option of the default back end changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker.codegen.cpp import backend
from stoker.errors import BadArgument
from stoker.options import MODES


def chain(x: Any) -> Any:
    return ((x * 1.1 + 0.3) * 0.7 - 0.2) * 1.3


def test_precision_fused_is_nearer_to_the_truth() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)).bfloat16()
    truth = chain(x.double())
    eager, rounded = chain(x), stoker.compile(chain)(x)
    fused = stoker.compile(chain, options={"precision": "fused"})(x)
    assert torch.equal(rounded, eager)
    assert fused.dtype is torch.bfloat16
    assert (fused - truth).abs().mean() < 0.8 * (eager - truth).abs().mean()


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(BadArgument, match="precision is one of eager, fused"):
        stoker.compile(chain, options={"precision": "double"})


@pytest.mark.parametrize("mode", MODES)
def test_modes_agree_with_eager(mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    x = torch.randn(2, 3, 8, 8)
    expected = model.eval()(x)
    compiled = stoker.compile(model, mode=mode)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(compiled(x), expected)


def test_autotune_measures_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[list[int]] = []
    measure = backend.fastest
    monkeypatch.setattr(backend, "fastest", lambda *given: chosen.append(measure(*given)) or chosen[-1])
    x = torch.randn(64, 600)
    compiled = stoker.compile(lambda x: torch.softmax(x, -1) + x.sum(0), options={"autotune": True})
    torch.testing.assert_close(compiled(x), torch.softmax(x, -1) + x.sum(0))
    ((*builds,),) = chosen
    assert builds and all(0 <= build <= 3 for build in builds)
