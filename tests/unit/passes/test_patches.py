"""Convolutions of patches side by side become products that give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Interpreter

from stoker.passes.patches import multiply_patches
from tests.unit.passes.devices import CPU, GPU, Written

aten = torch.ops.aten
Shape = tuple[int, ...]


def written(
    image: Shape, weight: Shape, *, bias: bool = True, dtype: torch.dtype = torch.float16, **other: Any
) -> GraphModule:
    w, rank = Written(), len(image) - 2
    device = other.pop("device", GPU)
    inputs: list[Any] = [w.input(*image, dtype=dtype, device=device), w.input(*weight, dtype=dtype, device=device)]
    inputs.append(w.input(weight[0], dtype=dtype, device=device) if bias else None)
    numbers = {
        "stride": list(weight[2:]), "padding": [0] * rank, "dilation": [1] * rank, "transposed": False, "output_padding": [0] * rank,
        "groups": 1,
    }  # fmt: skip
    return w.output(w.call(aten.convolution.default, *inputs, *(numbers | other).values()))


CASES: dict[str, tuple[Shape, Shape]] = {
    "a vision transformer's": ((2, 3, 32, 32), (24, 3, 16, 16)),
    "small": ((2, 3, 12, 16), (16, 3, 4, 4)),
    "one channel": ((3, 1, 8, 8), (8, 1, 2, 4)),
    "a rest at the edge": ((2, 3, 11, 18), (16, 3, 4, 4)),
    "a line": ((2, 3, 64), (8, 3, 16)),
    "a film": ((1, 3, 4, 8, 8), (8, 3, 2, 4, 4)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, bias: bool) -> None:
    torch.manual_seed(0)
    image, weight = CASES[name]
    module = written(image, weight, bias=bias)
    (before,) = [n.args[0][0].meta["val"].meta for n in module.graph.nodes if n.op == "output"]
    assert multiply_patches(module.graph) == 1
    (after,) = [n.args[0][0].meta["val"].meta for n in module.graph.nodes if n.op == "output"]
    assert (after.sizes, after.strides, after.dtype) == (before.sizes, before.strides, before.dtype)
    given = [torch.randn(s).half() for s in (image, weight, *[(weight[0],)] * bias)]
    (found,) = Interpreter(module).run(*given)
    x, w, *b = (t.double() for t in given)
    convolution: Any = {3: torch.conv1d, 4: torch.conv2d, 5: torch.conv3d}[len(image)]
    wanted = convolution(x, w, *b, stride=weight[2:])
    torch.testing.assert_close(found.double(), wanted, rtol=4e-3, atol=4e-2)


@pytest.mark.parametrize(
    ("weight", "other"),
    [
        ((16, 3, 4, 4), {"stride": [2, 2]}),  # patches overlap
        ((16, 3, 4, 4), {"stride": [5, 5]}),  # they have gaps
        ((16, 3, 4, 4), {"padding": [1, 0]}),
        ((16, 3, 4, 4), {"dilation": [2, 1]}),
        ((15, 3, 4, 4), {}),  # columns that fill no vector
        ((16, 3, 3, 3), {}),  # rows that fill none
        ((16, 3, 4, 4), {"dtype": torch.float32}),  # which cuDNN may round as it likes
        ((16, 3, 4, 4), {"device": CPU}),
    ],
)
def test_what_stays(weight: Shape, other: dict[str, Any]) -> None:
    assert multiply_patches(written((2, 3, 24, 24), weight, **other).graph) == 0


def test_many_channels_stay() -> None:
    assert multiply_patches(written((2, 8, 8, 8), (16, 8, 2, 2)).graph) == 0
