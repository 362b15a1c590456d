"""A layer that is applied to weights, as to embeddings of positions, is no layer to pack: all of it is known."""

from __future__ import annotations

import pytest
import torch

import stoker
from stoker import pipeline


class Placed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = torch.nn.Parameter(torch.randn(6, 8))
        self.image = torch.nn.Parameter(torch.randn(1, 3, 8, 8))
        self.first, self.second = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)
        self.convolution = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = self.first(self.places) * self.second(self.places) + self.convolution(self.image).mean()
        return self.first(x) + known + self.second(x)


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("way", ["plain", "mkl", "onednn"])
def test_layers_of_weights(way: str, joined: bool, freezing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "choose_linear", lambda *shape, **how: way)
    monkeypatch.setattr(pipeline, "choose_join", lambda *shape: joined)
    torch.manual_seed(0)
    model = Placed().eval()
    compiled = stoker.compile(lambda x: model(x), options={"freezing": freezing})
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(6, 8)
            torch.testing.assert_close(compiled(x), model(x))
