"""Operators whose results lie in a way of their own, whatever way their arguments lie: the strides that eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.fake import FakeMode

LAYOUTS = {
    "transposed": torch.ones(4, 3).t(),
    "permuted": torch.ones(2, 4, 3).permute(2, 1, 0),
    "with gaps": torch.ones(3, 4, 8)[..., ::2],
    "expanded": torch.ones(1, 4, 3).expand(2, 4, 3),
    "channels last": torch.ones(2, 4, 5, 3).to(memory_format=torch.channels_last),
    "volumes": torch.ones(2, 4, 3, 2, 3).to(memory_format=torch.channels_last_3d),
}
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "power of a number": lambda x: 2**x,
    "power of 1": lambda x: torch.pow(1, x),
    "drawn": lambda x: x.bernoulli(0.5),
    "leaky by chance": lambda x: F.rrelu(x, training=True),
    "leaky": lambda x: F.rrelu(x),
    "shuffled": lambda x: F.channel_shuffle(x, 2) if x.dim() > 2 else x,
    "unpooled": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2) if x.dim() == 4 else x,
    "eigenvectors": lambda x: torch.linalg.eig(x @ x.mT)[1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_fake(name: str, layout: str) -> None:
    mode = FakeMode()
    x = mode.from_real(LAYOUTS[layout])
    with mode:
        made = OPERATORS[name](x)
    assert made.stride() == OPERATORS[name](LAYOUTS[layout]).stride()


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", OPERATORS)
def test_compiled(name: str, dynamic: bool) -> None:
    compiled = stoker.compile(OPERATORS[name], dynamic=dynamic)
    for x in (LAYOUTS["transposed"], LAYOUTS["channels last"]):
        assert compiled(x).stride() == OPERATORS[name](x).stride()


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_layer_of_an_encoder(norm_first: bool) -> None:
    """In inference it is one operator."""
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=norm_first).eval()
    compiled = stoker.compile(layer)
    with torch.no_grad():
        for x in (torch.randn(2, 4, 3).transpose(1, 2), torch.randn(3, 2, 4).transpose(0, 1), torch.randn(2, 3, 4)):
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)
            assert compiled(x).stride() == layer(x).stride()
