"""Fourier transforms lie in memory as eager's, whatever lies in memory how before; and geqrf of empty matrices."""

from __future__ import annotations

import itertools

import pytest
import torch

from stoker.fake import FakeMode


def _laid_out(made: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(made.shape), tuple(made.stride())


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("dims", [(0,), (2,), (1, 2), (2, 1), (0, 2), (2, 0, 1), (0, 1, 2)])
def test_strides(order: tuple[int, ...], dims: tuple[int, ...]) -> None:
    aten = torch.ops.aten
    mode = FakeMode()
    real = torch.randn(3, 4, 5).permute(order)
    wide = torch.randn(3, 4, 5, dtype=torch.complex64).permute(order)
    cases = [(aten._fft_c2c, wide, True), (aten._fft_r2c, real, True), (aten._fft_r2c, real, False)]
    for operator, x, flag in cases:
        expected = _laid_out(operator(x, dims, 0, flag))
        with mode:
            assert _laid_out(operator(mode.from_real(x), dims, 0, flag)) == expected


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 3, 2), (2, 3, 0), (4, 3), (2, 3, 4)])
def test_geqrf(shape: tuple[int, ...]) -> None:
    mode = FakeMode()
    x = torch.randn(shape)
    expected = [_laid_out(made) for made in torch.geqrf(x)]
    with mode:
        assert [_laid_out(made) for made in torch.geqrf(mode.from_real(x))] == expected
