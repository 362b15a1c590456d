"""Pooling, padding, upsampling and other orders of elements, through every stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

DTYPES = [torch.float32, torch.bfloat16, torch.float64]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def _image(dtype: torch.dtype, layout: Any) -> torch.Tensor:
    torch.manual_seed(0)
    image = torch.randn(2, 8, 7, 9)
    image[0, 0, :2, :2] = torch.tensor([[float("nan"), float("-inf")], [float("inf"), -0.0]])
    return image.to(dtype).to(memory_format=layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pooling(agree: Any, dtype: torch.dtype, layout: Any) -> None:
    programs = [
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(torch.relu(x), (2, 3), (1, 2), ceil_mode=True), lambda x: F.max_pool2d(x, 2, 1, dilation=2),
        lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 1, 1), lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), divisor_override=5),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda x: F.adaptive_avg_pool2d(x, (7, 3)),
        lambda x: F.max_pool2d(x[0], 2), lambda x: F.avg_pool2d(x.exp() * 2, 2) + 1,
    ]  # fmt: skip
    agree(programs, [_image(dtype, layout)], exact=False)


def test_a_large_window_is_a_library_call(agree: Any) -> None:
    (record,) = agree([lambda x: F.avg_pool2d(x, 7)], [_image(torch.float32, LAYOUTS[0])], lowered=False, exact=False)
    assert record.products["program"].declined == [("aten.avg_pool2d.default", "a library call")]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64], ids=str)
def test_moving(agree: Any, dtype: torch.dtype) -> None:
    x = _image(torch.float32, LAYOUTS[0]).nan_to_num(0, 1, -1).mul(9).to(dtype)
    programs = [
        lambda x: F.pad(x, (2, 3, 1, 4), mode="reflect"), lambda x: F.pad(x[0], (3, 0), mode="replicate"),
        lambda x: F.pad(x, (2, 3, 1, 4), mode="replicate"), lambda x: F.pad(x, (1, -2, 0, 2), value=3),
        lambda x: torch.roll(x, (2, -11), (2, 3)), lambda x: torch.roll(x.flatten(), 5), lambda x: x.flip(1, 3) * 2,
        lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x[..., :6, :6], 3), lambda x: F.channel_shuffle(x, 4),
        lambda x: torch.diag_embed(x[0, 0], 1), lambda x: torch.diag_embed(x[0, 0], -2, 0, 2), lambda x: x[0, 0].tril(1) + x[1, 1].triu(-1),
        lambda x: torch.repeat_interleave(x, 3, 1), lambda x: torch.permute_copy(x, (1, 0, 3, 2)), lambda x: torch.unbind_copy(x, 1),
        lambda x: torch.eye(5, 7, dtype=x.dtype) * x[0, 0, :5, :7], lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
        lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 6, 3),
    ]  # fmt: skip
    if dtype is torch.int64:
        programs = programs[3:]  # eager pads whole numbers only with a constant
    agree(programs, [x])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_upsampling(agree: Any, dtype: torch.dtype) -> None:
    programs = [
        lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=(14, 18)), lambda x: F.interpolate(x, size=(3, 5)),
        lambda x: F.interpolate(x, scale_factor=3, mode="nearest-exact"), lambda x: F.interpolate(x[0], scale_factor=2) + 1,
    ]  # fmt: skip
    agree(programs, [_image(dtype, LAYOUTS[0])])
