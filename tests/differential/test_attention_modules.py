"""torch.nn's attention modules in inference, where they call operators that compute a whole layer: masks, weights or none, lengths."""

from __future__ import annotations

from collections.abc import Callable

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


MASKS: dict[str, Callable[[int], Tensor]] = {
    "ends of rows": padding,
    "nothing": lambda length: torch.zeros(2, length, dtype=torch.bool),
    "beginnings of rows": lambda length: padding(length).flip(1),
    "numbers": lambda length: torch.zeros(2, length).masked_fill(padding(length), float("-inf")),
}


def encoder(**how: bool) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, **how).eval()


def compare_encoders(module: nn.TransformerEncoder, whole: bool, mask: Callable[[int], Tensor], **how: bool) -> None:
    def inside(x: Tensor, src_key_padding_mask: Tensor) -> Tensor:
        return module(x * 2, src_key_padding_mask=src_key_padding_mask) + 1

    function = inside if whole else module
    compiled = stoker.compile(function, **how)
    for length in LENGTHS:
        x = torch.randn(2, length, 8)
        want = function(x, src_key_padding_mask=mask(length))
        torch.testing.assert_close(compiled(x, src_key_padding_mask=mask(length)), want)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_padded_rows_of_an_encoder(mask: str, whole: bool) -> None:
    """Eager makes zeros of them where the mask hides ends of rows, and leaves them otherwise."""
    with torch.no_grad():
        compare_encoders(encoder(), whole, MASKS[mask])


@pytest.mark.parametrize("mask", MASKS)
def test_padded_rows_that_eager_computes_are_one_graph(mask: str) -> None:
    with torch.no_grad():
        compare_encoders(encoder(enable_nested_tensor=False), True, MASKS[mask], fullgraph=True)
    compare_encoders(encoder(), True, MASKS[mask], fullgraph=True)  # differentiated: eager keeps the rows


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("nested_first", [False, True])
def test_nested_tensors_run_as_they_are(nested_first: bool) -> None:
    torch.manual_seed(0)
    nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)])
    layer = nn.Linear(4, 4)

    def project(x: Tensor) -> Tensor:
        y = layer(x).relu()
        return y.to_padded_tensor(0.0) if y.is_nested else y + 1

    compiled = stoker.compile(project)
    dense = torch.randn(2, 4)
    with torch.no_grad():
        for x in (nested, dense, nested) if nested_first else (dense, nested, dense):
            torch.testing.assert_close(compiled(x), project(x))
