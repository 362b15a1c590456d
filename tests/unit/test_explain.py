"""What `stoker.explain` tells of kernels."""

from __future__ import annotations

import time
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torch import nn

import stoker
from stoker import log, took
from stoker.debug import explain


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


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu() + 1
        return x.softmax(-1)


def test_what_took_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    monkeypatch.setattr(explain, "WORTH_TELLING", 0.0)  # however fast a machine is
    start = time.perf_counter()
    with torch.no_grad():
        explanation = stoker.explain(Deep(), torch.randn(3, 8))
    passed = time.perf_counter() - start
    assert {"capture", "autograd", "passes", "lower", "schedule", "build", "encode"} <= explanation.seconds.keys()
    assert all(seconds >= 0 for seconds in explanation.seconds.values())
    assert list(explanation.seconds.values()) == sorted(explanation.seconds.values(), reverse=True)
    assert 0 < sum(explanation.seconds.values()) <= passed
    (seconds, what), *_ = explanation.slowest_builds
    assert 0 < seconds <= passed and "kernels; " in what and "aten." in what
    assert "compiling took " in str(explanation)
    monkeypatch.setattr(explain, "WORTH_TELLING", passed)
    assert "compiling took " not in str(explanation)


def test_time_is_told_of_what_is_compiled_already() -> None:
    compiled = stoker.compile(lambda x: x.sin() + 1)
    x = torch.randn(4)
    compiled(x)
    assert "capture" in stoker.explain(compiled, x).seconds
    assert "compiling took " not in str(stoker.explain(stoker.compile(lambda x: x, backend="eager"), 1))


def test_a_stage_that_fails_is_counted() -> None:
    found: list[log.Event] = []
    with log.collecting(found), pytest.raises(KeyError), took.timed("outside"), took.timed("inside"):
        raise KeyError
    assert [event.subject for event in found if event.kind == "took"] == ["inside", "outside"]


def test_a_stage_has_its_own_time() -> None:
    spans = [took.Took(*given) for given in (("a", 0, 10), ("b", 1, 4), ("c", 2, 3), ("b", 5, 6), ("d", 10, 11))]
    for order in permutations(spans):
        assert took.own_seconds(order) == {"a": 6, "b": 3, "c": 1, "d": 1}
