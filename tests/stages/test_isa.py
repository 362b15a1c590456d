"""Kernels built for each instruction set that the machine has give what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.runtime import build
from tests.stages.conftest import Agree
from tests.unit.codegen.isa import ISAS, runnable

PROGRAMS: list[Any] = [
    lambda x, w, i: x.softmax(-1), lambda x, w, i: F.layer_norm(x, (200,), w, w), lambda x, w, i: F.gelu(x) + F.silu(x),
    lambda x, w, i: x.t().contiguous() * 2, lambda x, w, i: x.view(5, 13, 200).permute(0, 2, 1).contiguous(),
    lambda x, w, i: torch.var_mean(x, 0), lambda x, w, i: (x.sin() * x.cos() + x.exp().log1p()), lambda x, w, i: (x / 4).tan(),
    lambda x, w, i: (x.abs() + 0.1).pow(1.5) + torch.atan2(x, w), lambda x, w, i: x.amax(0) + x.argmax(0),
    lambda x, w, i: x.to(torch.bfloat16) * 3 + x.half(), lambda x, w, i: x[i].cumsum(0), lambda x, w, i: F.cross_entropy(x, i[:65]),
    lambda x, w, i: F.cross_entropy(x, i[:65], ignore_index=3), lambda x, w, i: torch.where(i > 30, i.clamp(max=40), 7).float().sum(),
    lambda x, w, i: torch.zeros_like(x).index_add(0, i[:65], x), lambda x, w, i: x.sum() + x.double().exp().sum(),
]  # fmt: skip


@pytest.mark.parametrize("isa", runnable())
def test_kernels_for(isa: str, agree: Agree, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(f for f in build.FLAGS if not f.startswith(("-march", "-mprefer")))
    monkeypatch.setattr(build, "FLAGS", (*others, *ISAS[isa]))
    torch.manual_seed(0)
    agree(PROGRAMS, [torch.randn(65, 200), torch.randn(200), torch.randint(0, 65, (70,))], lowered=False, exact=False)
