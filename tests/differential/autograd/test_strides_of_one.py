"""Strides of dimensions of one element are eager's, of results and of gradients, however inputs lie in memory.

Nobody reads memory by them, but programs see them: `stride()`, `view`, `as_strided`, and whether something `is_contiguous(memory_format=...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import stoker

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.5),
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5),
    "nan_to_num": lambda x: torch.nan_to_num(x, 1.0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.25)),
    "angles": lambda x: (torch.deg2rad(x), torch.rad2deg(x)),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "softmax": lambda x: x.softmax(-1),
    "gelu": lambda x: F.gelu(x),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    "squared error": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "entropy": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none"),
    "view": lambda x: x.view(x.shape).unsqueeze(0) * 2 if x.is_contiguous() else x * 2,
    "chosen": lambda x: x[:, torch.tensor([0, 0])],
    "stacked": lambda x: torch.stack([x, x], 1),
    "then a view": lambda x: x.masked_fill(x > 0, 0.5).t() if x.dim() == 2 else x.masked_fill(x > 0, 0.5).transpose(0, 1),
    "then a write": lambda x: F.hardtanh(x).add_(1),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2.0),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
}  # fmt: skip
LAYOUTS = {
    "row stored as a column": lambda: torch.randn(4, 1).t(),
    "column stored as a row": lambda: torch.randn(1, 4).t(),
    "one": lambda: torch.randn(1, 1).as_strided((1, 1), (5, 1)),
    "permuted": lambda: torch.randn(5, 3, 1).permute(1, 2, 0),
    "turned round": lambda: torch.randn(5, 1, 3).permute(2, 1, 0),
    "sliced": lambda: torch.randn(3, 4, 5).permute(2, 1, 0)[:, 1:2],
    "odd": lambda: torch.randn(15).as_strided((3, 1, 5), (1, 100, 3)),
    "channels last": lambda: torch.randn(2, 1, 3, 4).to(memory_format=torch.channels_last),
    "one image": lambda: torch.randn(1, 3, 1, 4).to(memory_format=torch.channels_last),
}


def seen(program: Callable[[torch.Tensor], Any], x: torch.Tensor, grad: bool) -> list[Any]:
    x = x.detach().requires_grad_(grad)
    made = program(x)
    results = list(made) if isinstance(made, tuple) else [made]
    if grad:
        results += torch.autograd.grad(results, x, [torch.ones_like(r) for r in results])
    return [(tuple(r.shape), r.stride()) for r in results]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_are_eagers(layout: str) -> None:
    """All programs as one, so that the C++ compiler runs once."""
    x = LAYOUTS[layout]()

    def every(x: torch.Tensor) -> Any:
        found = []
        for program in PROGRAMS.values():
            made = program(x)
            found += list(made) if isinstance(made, tuple) else [made]
        return tuple(found)

    compiled = stoker.compile(every, fullgraph=True, dynamic=False)
    with torch.no_grad():
        assert seen(compiled, x, False) == seen(every, x, False)


@pytest.mark.parametrize("layout", ["row stored as a column", "odd", "one image"])
@pytest.mark.parametrize("name", ["masked_fill", "hardtanh", "layer_norm", "prelu", "squared error", "gelu"])
def test_strides_of_gradients(name: str, layout: str) -> None:
    x = LAYOUTS[layout]()
    compiled = stoker.compile(PROGRAMS[name], backend="aot_eager", options={"decompositions": True}, dynamic=False)
    assert seen(compiled, x, True) == seen(PROGRAMS[name], x, True)


@pytest.mark.parametrize("name", ["masked_fill", "hardtanh", "layer_norm", "softmax"])
def test_one_element_beside_sizes_that_vary(name: str) -> None:
    compiled = stoker.compile(PROGRAMS[name], dynamic=True)
    for length in (4, 7, 5):
        x = torch.randn(length, 1, 3).permute(1, 2, 0)
        assert compiled(x).stride() == PROGRAMS[name](x).stride()


def test_convolution_of_one_dimension_by_a_weight_with_channels_last() -> None:
    """Eager convolves it as an image."""
    weight = torch.randn(6, 3, 4).transpose(1, 2)
    program = lambda x, w: F.conv1d(x, w, padding=1)  # noqa: E731
    for x in (torch.randn(2, 4, 7), torch.randn(2, 7, 4).transpose(1, 2), torch.randn(1, 4, 1)):
        wanted, found = program(x, weight), stoker.compile(program, dynamic=False)(x, weight)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted)


def test_no_copy_is_made_for_them() -> None:
    """The other strides are a step of the loop that computes the elements."""
    x = LAYOUTS["row stored as a column"]()
    told = stoker.explain(stoker.compile(lambda x: F.hardtanh(x) * 2 + 1), x).compiled[0]
    assert len([line for line in told.lines() if line.startswith("kernel")]) == 1
    assert not [line for line in told.lines() if line.startswith("library")]
