"""What `stoker.explain` tells of kernels."""

from __future__ import annotations

import torch
from torch import nn

import stoker


def test_kernels_and_what_is_fused() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))
    with torch.no_grad():
        explanation = stoker.explain(model, torch.randn(3, 8))
    (summary,) = explanation.compiled
    assert explanation.kernel_count == len(summary.kernels) == 2
    (first, runs), (second, _) = summary.kernels
    assert runs == 1
    assert second == ("aten._softmax.default",)
    assert sum(count for _, count, _ in summary.calls) == 2
    text = str(explanation)
    assert "2 kernels run 2 times" in text
    assert "library, " in text
    assert "aten.rsqrt.default" in first


def test_refusals_have_reasons() -> None:
    with torch.no_grad():
        explanation = stoker.explain(lambda x: (x.exp().sum(0), x.exp().flip(0).cumsum(1)), torch.randn(30, 40))
    (summary,) = explanation.compiled
    assert summary.refusals
    assert all(reason for *_, reason in summary.refusals)


def test_a_library_call_says_why() -> None:
    explanation = stoker.explain(lambda x: torch.linalg.qr(x)[0] + 1, torch.randn(4, 4))
    (summary,) = explanation.compiled
    assert ("aten.linalg_qr.default", 1, "linear algebra") in summary.calls


def test_memory_is_told() -> None:
    with torch.no_grad():
        explanation = stoker.explain(lambda x: torch.relu(x @ x) @ x, torch.randn(8, 8))
    (summary,) = explanation.compiled
    assert summary.memory == (
        "1 temporaries in an arena of 256 bytes",
        "1 results written over buffers that die there",
    )
    assert "memory: 1 temporaries" in str(explanation)
