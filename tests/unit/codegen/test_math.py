"""The functions of math.h, for each type and instruction set: at most two units in the last place from eager, or from the truth."""

from __future__ import annotations

import ctypes
import functools
import math

import numpy as np
import pytest
import torch

from stoker.codegen.cpp.unit import HEADER
from tests.unit.codegen.isa import build, runnable

ONE = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "sigmoid",
]
TWO = ["pow", "atan2"]
OTHER = ["decay", "normal_tail"]
TYPES = {"float": np.float32, "double": np.float64}
LOOSE = {("double", name) for name in ("tanh", "asinh", "acosh", "atanh", "erf")}
"""Where glibc's vector functions are three units off, rarely."""
LARGE = {"float": 1e5, "double": 1e9}
"""Angles from which on sin, cos and tan are glibc's, too."""
TRUTH = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "pow": "power",
}  # fmt: skip
"""Other names that numpy has for functions; it computes with extended precision."""
SPECIAL = [
    0.0, 1.0, np.inf, np.nan, 1e-45, 1e-40, 1e-38, 3.4e38, 88.8, 88.7, 103.9, 105.0, 1e-8, 1e5, 1e10, 1e20, 1e30, 0.5, 2.0, 3.0,
    np.pi, 127.9, 128.0, 149.0, 150.0, 709.5, 745.2, 1e-310, 5e-324, 1e300, 1.5, 4.0,
]  # fmt: skip


@functools.cache
def library(isa: str) -> ctypes.CDLL:
    text = [HEADER.replace("#pragma once\n", "")]
    for kind in TYPES:
        for name in (*ONE, *TWO, *OTHER):
            inputs = ", ".join(f"const {kind}* x{k}" for k in range(1 + (name in TWO)))
            values = ", ".join(f"x{k}[i]" for k in range(1 + (name in TWO)))
            text.append(
                f'extern "C" void {name}_{kind}({inputs}, {kind}* y, long n) {{\n#pragma omp simd\n'
                f"for (long i = 0; i < n; ++i) y[i] = {name}_of({values}); }}\n"
            )
    return build("".join(text), isa)


def run(isa: str, name: str, *x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x[0])
    kind = "float" if y.dtype == np.float32 else "double"
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*x, y)]
    getattr(library(isa), f"{name}_{kind}")(*pointers, ctypes.c_long(len(y)))
    return y


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Units in the last place between floats; very many between a number and none."""
    whole = np.int32 if a.dtype == np.float32 else np.int64

    def ordered(v: np.ndarray) -> np.ndarray:
        i = v.view(whole).astype(np.int64)
        return np.where(i < 0, -(i & np.iinfo(whole).max), i)

    far = np.abs(ordered(a).astype(np.float64) - ordered(b).astype(np.float64))
    near = np.abs(ordered(a) - ordered(b))
    both = np.where(far > 2**60, far, near.astype(np.float64))
    return np.where(np.isnan(a) | np.isnan(b), np.where(np.isnan(a) & np.isnan(b), 0.0, 1e18), both)


def truth_of(name: str, *x: np.ndarray) -> np.ndarray:
    """The function in more digits, rounded."""
    if x[0].dtype == np.float32:
        return getattr(torch, name)(*(torch.from_numpy(v).double() for v in x)).float().numpy()
    if name in ("erf", "erfc"):
        return np.vectorize(getattr(math, name))(x[0])
    function = getattr(np, TRUTH.get(name, name), lambda v: 1 / (1 + np.exp(-v)))
    with np.errstate(all="ignore"):
        return function(*(v.astype(np.longdouble) for v in x)).astype(np.float64)


def values(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, scale, 60_000) for scale in (0.01, 0.1, 1, 10, 40, 1000)] + [rng.uniform(-1, 1, 60_000)]
    parts += [sign * np.exp(rng.uniform(-87, 88, 60_000)) for sign in (1, -1)]
    with np.errstate(over="ignore"):
        return np.concatenate([*parts, SPECIAL, np.negative(SPECIAL)]).astype(TYPES[kind])


def check(isa: str, kind: str, name: str, *x: np.ndarray) -> None:
    mine = run(isa, name, *x)
    eager = getattr(torch, name)(*map(torch.from_numpy, x)).numpy()
    far = np.minimum(distance(mine, eager), distance(mine, truth_of(name, *x)))
    loose = (name in ("sin", "cos", "tan")) & (np.abs(x[0]) >= LARGE[kind]) | ((kind, name) in LOOSE)
    far = np.where(loose, far - 1, far)
    worst = int(far.argmax())
    given = [float(v[worst]) for v in x]
    assert far.max() <= 2, f"{name}{given}: {mine[worst]!r}, eager {eager[worst]!r}, {far.max()} apart"


@pytest.mark.parametrize("isa", runnable())
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ONE)
def test_close_to_eager(isa: str, kind: str, name: str) -> None:
    check(isa, kind, name, values(kind))


@pytest.mark.parametrize("isa", runnable())
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", TWO)
def test_of_two_numbers(isa: str, kind: str, name: str) -> None:
    rng, x = np.random.default_rng(1), values(kind)
    with np.errstate(over="ignore"):
        special = np.array([*SPECIAL, *np.negative(SPECIAL)]).astype(TYPES[kind])
    grid = [g.ravel() for g in np.meshgrid(special, special)]
    usual = [np.exp(rng.normal(0, 1, 60_000)), rng.normal(0, 10, 60_000)]
    pairs = [np.concatenate([a, b, c]).astype(TYPES[kind]) for a, b, c in zip((x, rng.permutation(x)), grid, usual)]
    check(isa, kind, name, *pairs)


@pytest.mark.parametrize("isa", runnable())
def test_decay_is_exp_without_the_smallest(isa: str) -> None:
    parts = [np.random.default_rng(0).normal(0, s, 100_000) for s in (0.1, 5, 60)]
    x = -np.abs(np.concatenate(parts)).astype(np.float32)
    mine, truth = run(isa, "decay", x), np.exp(x.astype(np.float64)).astype(np.float32)
    small = truth < np.finfo(np.float32).smallest_normal
    assert distance(mine, truth)[~small].max() <= 2
    assert (mine[small & (x < -87.34)] == 0).all()
    assert np.isnan(run(isa, "decay", np.array([np.nan, -np.inf], dtype=np.float32))).tolist() == [True, False]


@pytest.mark.parametrize("isa", runnable())
def test_normal_tail(isa: str) -> None:
    x = np.concatenate([np.linspace(-8, 8, 400_001), [-np.inf, np.inf, 0.0, -0.0]]).astype(np.float32)
    mine, truth = run(isa, "normal_tail", x), torch.special.ndtr(-torch.from_numpy(x).double().abs()).numpy()
    assert np.abs(mine - truth).max() < 3e-7
    assert np.isnan(run(isa, "normal_tail", np.array([np.nan], dtype=np.float32))).all()
