"""Linear layers of one input become one where that is faster, and compute what they did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import pipeline
from stoker.passes.join import join


class Heads(nn.Module):
    """Queries, keys and values of one input, each with what stands behind it in a model."""

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, n, bias=bias) for n in (16, 16, 24))
        self.up = nn.Linear(16, 8, bias=bias)

    def forward(self, x: Any) -> Any:
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = (q.view(2, 5, 2, 8).transpose(1, 2) @ k.view(2, 5, 2, 8).transpose(1, 2).mT).softmax(-1)
        return scores @ v.view(2, 5, 2, 12).transpose(1, 2), v, nn.functional.gelu(self.up(x)), q + 1


@pytest.fixture(params=[True, False])
def heads(request: Any) -> nn.Module:
    torch.manual_seed(0)
    return Heads(bias=request.param)


def test_layers_become_one(monkeypatch: Any, heads: nn.Module) -> None:
    asked = []

    def faster(rows: int, inputs: int, outputs: tuple[int, ...]) -> bool:
        asked.append((rows, inputs, outputs))
        return True

    monkeypatch.setattr(pipeline, "choose_join", faster)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        compiled = stoker.compile(heads)
        for _ in range(2):
            for mine, eager in zip(compiled(x), heads(x), strict=True):
                torch.testing.assert_close(mine, eager)
                assert mine.stride() == eager.stride()
        told = str(stoker.explain(heads, x))
        heads.k.weight.mul_(2)  # type: ignore[operator, union-attr]
        for mine, eager in zip(compiled(x), heads(x), strict=True):
            torch.testing.assert_close(mine, eager)
    assert asked and asked[0] == (10, 16, (16, 16, 24)), "the layer with a function behind it is another pass's"
    assert "linear layers of one input are one (2)" in told


def test_slower_ones_stay(monkeypatch: Any, heads: nn.Module) -> None:
    monkeypatch.setattr(pipeline, "choose_join", lambda *shape: False)
    with torch.no_grad():
        assert "are one" not in str(stoker.explain(heads, torch.randn(2, 5, 16)))


def test_what_is_not_a_weight_stays(functional: Any) -> None:
    """Only weights may be laid side by side once."""
    module = functional(lambda x, a, b: (x @ a).sum() + (x @ b).sum(), *(torch.randn(4, 4) for _ in range(3)))
    assert join(module, ["x1"], lambda *shape: True) == 0
    assert join(module, ["x1", "x2"], lambda *shape: True) == 1
    module.recompile()
    x, a, b = (torch.randn(4, 4) for _ in range(3))
    torch.testing.assert_close(module(x, a, b)[0], (x @ a).sum() + (x @ b).sum())


def test_large_weights_stay(functional: Any) -> None:
    module = functional(
        lambda x, a, b: (x @ a).sum() + (x @ b).sum(), torch.randn(1, 600), *[torch.randn(600, 500)] * 2
    )
    assert join(module, ["x1", "x2"], lambda *shape: True) == 0


class Projections(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.v, self.w = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        q, v = self.q(x), self.v(x)
        return q, v.view(-1), self.w(x), v.as_strided((2, 2), (4, 2)), q.t()


def test_results_lie_in_memory_of_their_own(monkeypatch: Any) -> None:
    monkeypatch.setattr(pipeline, "choose_join", lambda *shape: True)
    model, x = Projections(), torch.randn(5, 8)
    with torch.no_grad():
        got, want = stoker.compile(lambda x: model(x))(x), model(x)
    for mine, eager in zip(got, want, strict=True):
        torch.testing.assert_close(mine, eager)
        assert mine.stride() == eager.stride()
    assert got[0].untyped_storage().data_ptr() != got[2].untyped_storage().data_ptr()
    got[0].view(-1).zero_()
    torch.testing.assert_close(got[2], want[2])
