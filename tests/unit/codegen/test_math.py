"""The header's functions: at most two units in the last place from eager, or nearer to the truth than that."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from stoker.codegen.cpp.unit import HEADER
from stoker.runtime.build import load

NAMES = ["exp", "expm1", "tanh", "erf", "log", "log1p", "sigmoid"]
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    1e-38,
    3.4e38,
    -3.4e38,
    88.8,
    88.7,
    -103.9,
    -105.0,
    1e-8,
    -1e-8,
]


def run(name: str, x: np.ndarray) -> np.ndarray:
    source = HEADER.replace("#pragma once\n", "") + (
        f'extern "C" void apply(const float* x, float* y, long n) {{\n#pragma omp simd\n'
        f"for (long i = 0; i < n; ++i) y[i] = {name}_of(x[i]); }}\n"
    )
    y = np.empty_like(x)
    pointer = ctypes.POINTER(ctypes.c_float)
    load(source).apply(x.ctypes.data_as(pointer), y.ctypes.data_as(pointer), ctypes.c_long(len(x)))
    return y


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Units in the last place between floats."""

    def ordered(v: np.ndarray) -> np.ndarray:
        i = v.view(np.int32).astype(np.int64)
        return np.where(i < 0, -(i & 0x7FFFFFFF), i)

    return np.where(np.isnan(a) & np.isnan(b), 0, np.abs(ordered(a) - ordered(b)))


@pytest.mark.parametrize("name", NAMES)
def test_close_to_eager(name: str) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, scale, 200_000) for scale in (0.1, 1, 10, 40)] + [
        np.exp(rng.uniform(-87, 88, 200_000)),
        SPECIAL,
    ]
    x = np.concatenate(parts).astype(np.float32)
    mine = run(name, x)
    eager = getattr(torch, name)(torch.from_numpy(x)).numpy()
    truth = getattr(torch, name)(torch.from_numpy(x).double()).float().numpy()
    far = np.minimum(distance(mine, eager), distance(mine, truth))
    worst = int(far.argmax())
    assert far.max() <= 2, f"{name}({x[worst]!r}): {mine[worst]!r}, eager {eager[worst]!r}, {far.max()} apart"


def test_decay_is_exp_without_the_smallest() -> None:
    x = -np.abs(np.concatenate([np.random.default_rng(0).normal(0, s, 100_000) for s in (0.1, 5, 60)])).astype(
        np.float32
    )
    mine, truth = run("decay", x), np.exp(x.astype(np.float64)).astype(np.float32)
    small = truth < np.finfo(np.float32).smallest_normal
    assert distance(mine, truth)[~small].max() <= 2
    assert (mine[small & (x < -87.34)] == 0).all()
    assert np.isnan(run("decay", np.array([np.nan, -np.inf], dtype=np.float32))).tolist() == [True, False]


def test_normal_tail() -> None:
    x = np.concatenate([np.linspace(-8, 8, 400_001), [-np.inf, np.inf, 0.0, -0.0]]).astype(np.float32)
    mine, truth = run("normal_tail", x), torch.special.ndtr(-torch.from_numpy(x).double().abs()).numpy()
    assert np.abs(mine - truth).max() < 3e-7
    assert np.isnan(run("normal_tail", np.array([np.nan], dtype=np.float32))).all()
