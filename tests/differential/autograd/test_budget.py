"""`memory_budget`, measured: the peak of a training step and what is held between its halves never grow as it falls."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stoker
from bench.memory import budgeted, kept_bytes, peak_bytes

transformers = pytest.importorskip("transformers")
BUDGETS = (1.0, 0.75, 0.5, 0.25, 0.0)


def gpt2() -> Any:
    config = transformers.GPT2Config(n_layer=4, n_head=4, n_embd=64, vocab_size=100, n_positions=64, use_cache=False)
    model = transformers.GPT2LMHeadModel(config)
    return model, lambda x: model(x, labels=x).loss, torch.randint(0, 100, (4, 64))


def mlp() -> Any:
    blocks = [m for _ in range(6) for m in (torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))]
    model = torch.nn.Sequential(*blocks)
    return model, lambda x: model(x).square().mean(), torch.randn(512, 64)


@pytest.mark.parametrize(("make", "peak_share", "kept_share"), [(gpt2, 0.7, 0.5), (mlp, 0.95, 0.5)])
def test_measured(make: Any, peak_share: float, kept_share: float) -> None:
    torch.manual_seed(0)
    model, program, x = make()
    peaks, kept, gradients = [], [], []
    for budget in BUDGETS:
        stoker.reset()
        call = stoker.compile(program, backend=budgeted(budget))
        torch.manual_seed(1)
        call(x).backward()
        gradients.append([p.grad for p in model.parameters()])
        peaks.append(peak_bytes(model, call, x))
        kept.append(kept_bytes(model, call, x))
        model.zero_grad()
    assert peaks == sorted(peaks, reverse=True) and kept == sorted(kept, reverse=True)
    assert peaks[-1] < peak_share * peaks[0] and kept[-1] < kept_share * kept[0]
    assert len(set(kept)) >= 3, "budgets between are of use"
    for found in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found, gradients[0], strict=True))
