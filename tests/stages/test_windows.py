"""Pooling, padding, upsampling and other orders of elements, through every stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import log

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


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_and_uneven_windows(agree: Any, dtype: torch.dtype, layout: Any) -> None:
    programs = [
        lambda x: F.avg_pool2d(x, 7), lambda x: F.avg_pool2d(x * 2, (6, 8), (1, 2), (3, 4), count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True, count_include_pad=False),
        lambda x: F.max_pool2d(x, 7, 1, 3) + 1, lambda x: F.max_pool2d(x, (6, 9)), lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
        lambda x: F.adaptive_avg_pool2d(x, (1, 2)), lambda x: F.adaptive_avg_pool2d(x, (9, 13)), lambda x: F.adaptive_max_pool2d(x, (3, 4)),
        lambda x: F.adaptive_max_pool2d(x[0], (5, 9), return_indices=True), lambda x: F.adaptive_avg_pool1d(x[0], 4),
        lambda x: F.avg_pool1d(x[0], 3, 2, 1), lambda x: F.max_pool1d(x[0].relu(), 3, 2, 1),
    ]  # fmt: skip
    agree(programs, [_image(dtype, layout)], exact=False)


def test_places_in_a_large_window_are_the_librarys(agree: Any) -> None:
    """Of several that are no number eager names the last, of equals the first: no reduction does."""
    program = lambda x: F.max_pool2d(x, 6, return_indices=True)  # noqa: E731
    (record,) = agree([program], [_image(torch.float32, LAYOUTS[0])], lowered=False, exact=False)
    ((name, reason),) = record.products["program"].declined
    assert name == "aten.max_pool2d_with_indices.default" and "places" in reason


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_volumes(agree: Any, dtype: torch.dtype) -> None:
    programs = [
        lambda x: F.max_pool3d(x, 2, return_indices=True), lambda x: F.max_pool3d(x, (2, 3, 3), 2, 1), lambda x: F.avg_pool3d(x, 2),
        lambda x: F.avg_pool3d(x, 3, 1, 1, count_include_pad=False), lambda x: F.avg_pool3d(x, (4, 3, 4)),
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), lambda x: F.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True),
    ]  # fmt: skip
    if dtype is torch.bfloat16:  # eager has no averages of these, or rounds each addition
        programs = [p for n, p in enumerate(programs) if n not in (2, 3, 4, 5)]
    torch.manual_seed(1)
    agree(programs, [torch.randn(2, 3, 4, 7, 9).to(dtype)], exact=False)


GRADIENTS = [
    lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3, 1, ceil_mode=True), lambda x: F.max_pool2d(x[0], (2, 3), 3),
    lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 1, 1), lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), divisor_override=5), lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    lambda x: F.avg_pool2d(x, 7), lambda x: F.adaptive_avg_pool2d(x, (3, 4)), lambda x: F.adaptive_avg_pool2d(x, (9, 13)),
    lambda x: F.adaptive_max_pool2d(x, (3, 4)), lambda x: F.avg_pool1d(x[0], 3, 2, 1),
]  # fmt: skip
VOLUMES = [
    lambda x: F.avg_pool3d(x, 2, 1), lambda x: F.max_pool3d(x, (2, 3, 3), 2, 1), lambda x: F.adaptive_avg_pool3d(x, (3, 3, 4)),
    lambda x: F.adaptive_max_pool3d(x, (6, 6, 8)),
]  # fmt: skip


SCATTERED = ("max_pool", "adaptive_", "windows that overlap")
"""Gradients that ATen's kernels compute faster."""


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_pooling(dtype: torch.dtype, layout: Any) -> None:
    x = torch.randn(2, 8, 7, 9).to(dtype).to(memory_format=layout)
    volumes = VOLUMES if layout is torch.contiguous_format and dtype is not torch.bfloat16 else []
    for number, program in enumerate([*GRADIENTS, *volumes]):
        found, expected = _trained(program, x)
        torch.testing.assert_close(found, expected, msg=lambda m, n=number: f"program {n}: {m}")
        assert found.stride() == expected.stride()


def _trained(program: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A gradient by the compiled program and by eager; only some gradients may be left to the library."""
    results = []
    stoker.reset()
    for function in (stoker.compile(program, dynamic=False), program):
        given = x.detach().clone().requires_grad_()
        y = function(given)
        y.backward(torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype))
        results.append(given.grad)
    summaries = [e.data for e in log.events("compiled")]
    left = [f"{name} {why}" for summary in summaries for name, _, why in summary.calls]
    assert [words for words in left if not ("backward" in words and any(s in words for s in SCATTERED))] == []
    log.clear()
    return results[0], results[1]  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64], ids=str)
def test_moving(agree: Any, dtype: torch.dtype) -> None:
    x = _image(torch.float32, LAYOUTS[0]).nan_to_num(0, 1, -1).mul(9).to(dtype)
    programs = [
        lambda x: F.pad(x, (2, 3, 1, 4), mode="reflect"), lambda x: F.pad(x[0], (3, 0), mode="replicate"),
        lambda x: F.pad(x, (2, 3, 1, 4), mode="replicate"), lambda x: F.pad(x, (1, -2, 0, 2), value=3),
        lambda x: torch.roll(x, (2, -11), (2, 3)), lambda x: torch.roll(x.flatten(), 5), lambda x: torch.roll(x, 100), lambda x: torch.roll(x.transpose(1, 2), -7), lambda x: x.flip(1, 3) * 2,
        lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x[..., :6, :6], 3), lambda x: F.channel_shuffle(x, 4),
        lambda x: torch.take(x, torch.tensor([[5, -1], [0, 77]])), lambda x: torch.take(x.transpose(0, 3) * 1, torch.arange(9)),
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


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_interpolation(agree: Any, dtype: torch.dtype, layout: Any) -> None:
    x = _image(dtype, layout).nan_to_num(0, 1, -1)
    programs = [
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), lambda x: F.interpolate(x, size=(14, 4), mode="bilinear"),
        lambda x: F.interpolate(x, size=(13, 20), mode="bilinear", align_corners=True), lambda x: F.interpolate(x, scale_factor=3, mode="bicubic"),
        lambda x: F.interpolate(x, size=(1, 20), mode="bilinear", align_corners=True), lambda x: F.interpolate(x, (9, 30), mode="bicubic", align_corners=True),
        lambda x: F.interpolate(x.relu() * 2, scale_factor=2, mode="bilinear") + 1,
    ]  # fmt: skip
    if dtype is torch.bfloat16:  # eager rounds the weights of cubic interpolation
        programs = [p for n, p in enumerate(programs) if n not in (3, 5)]
    agree(programs, [x], exact=False)
    if layout is torch.contiguous_format and dtype is not torch.bfloat16:  # eager rounds each step there
        agree([lambda x: F.interpolate(x[None], size=(5, 9, 12), mode="trilinear")], [x], exact=False)


def test_interpolation_of_changing_sizes() -> None:
    program = lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") + 1  # noqa: E731
    compiled = stoker.compile(program, dynamic=True)
    log.clear()
    for height, width in ((5, 6), (7, 11), (16, 3)):
        x = torch.randn(2, 3, height, width)
        torch.testing.assert_close(compiled(x), program(x))
    assert [call for e in log.events("compiled") for call in e.data.calls] == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unfolding(agree: Any, dtype: torch.dtype) -> None:
    x = _image(dtype, LAYOUTS[0]).nan_to_num(0, 1, -1)
    aten = torch.ops.aten
    programs = [
        lambda x: F.unfold(x, 3), lambda x: F.unfold(x[0], (2, 3), dilation=2, padding=(1, 2), stride=(1, 2)), lambda x: x.unfold(3, 4, 2) * 2,
        lambda x: x.exp().unfold(1, 3, 1).sum(-1), lambda x: F.fold(x[0].reshape(8, 63), (8, 10), 2), lambda x: F.fold(x[0, :, :5].flatten(1), (10, 18), 2, stride=2),
        lambda x: F.fold(x[0].reshape(8, 63), (12, 18), 2, stride=2, padding=(1, 0))[:, 1:], lambda x: F.fold(x[0, :, :4, :6].flatten(1), (5, 9), (2, 4)),
        lambda x: aten.unfold_backward(x, [2, 8, 16], 2, 9, 2), lambda x: aten.unfold_backward(x, [2, 25, 7], 1, 9, 2),
        lambda x: torch.unfold_copy(x, 2, 3, 2),
    ]  # fmt: skip
    if dtype is torch.bfloat16:  # eager rounds each addition of overlapping windows
        programs = [p for n, p in enumerate(programs) if n not in (4, 7, 8, 9)]
    agree(programs, [x], exact=False)


def test_searching(agree: Any) -> None:
    x = torch.tensor([[-3.0, -1.0, 0.0, float("nan"), 0.5], [1.0, 7.0, float("inf"), float("-inf"), 2.0]])
    bounds, rows = torch.tensor([-1.0, 0.0, 0.0, 1.0, 2.0, 5.0, 5.0]), torch.tensor([[-1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    programs = [
        lambda x, b, r: torch.bucketize(x, b), lambda x, b, r: torch.bucketize(x, b, right=True, out_int32=True), lambda x, b, r: torch.bucketize(x * 2, b[:1]),
        lambda x, b, r: torch.searchsorted(r, x), lambda x, b, r: torch.searchsorted(r, x, side="right"), lambda x, b, r: torch.bucketize(x, b[:0]),
        lambda x, b, r: torch.bucketize(x.nan_to_num().clamp(-9, 9).long(), b.long()), lambda x, b, r: torch.bucketize(x.bfloat16(), b.bfloat16()),
    ]  # fmt: skip
    agree(programs, [x, bounds, rows])
