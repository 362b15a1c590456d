"""torch.nn's attention modules in inference, where they call operators that compute a whole layer: masks, weights or none, lengths."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import stoker

LENGTHS = (3, 5, 4)


def padding(length: int) -> Tensor:
    return torch.arange(length)[None] >= torch.tensor([[length], [length - 1]])


@pytest.mark.parametrize("backend", [None, "aot_eager", "eager"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", ["none", "averaged", "each head's"])
def test_multihead_attention(weights: str, masked: bool, backend: str | None) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    compiled = stoker.compile(module) if backend is None else stoker.compile(module, backend=backend)
    how = {"need_weights": weights != "none", "average_attn_weights": weights == "averaged"}
    with torch.no_grad():
        for length in LENGTHS:
            x = torch.randn(2, length, 8)
            mask = padding(length) if masked else None
            found, want = (f(x, x, x, key_padding_mask=mask, **how) for f in (compiled, module))
            torch.testing.assert_close(found[0], want[0])
            assert (found[1] is None) == (want[1] is None) == (weights == "none")
            if want[1] is not None:
                torch.testing.assert_close(found[1], want[1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_weights_that_are_not_there_are_none_inside(dynamic: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def block(x: Tensor) -> Tensor:
        y, weights = module(x, x, x, need_weights=False)
        return x + y if weights is None else weights

    compiled = stoker.compile(block, dynamic=dynamic, fullgraph=True)
    with torch.no_grad():
        for length in LENGTHS:
            x = torch.randn(2, length, 8)
            torch.testing.assert_close(compiled(x), block(x))
