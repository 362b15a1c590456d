"""Fit the polynomials of stoker/codegen/cpp/header.h: weighted minimax by Lawson's iteration.

    python tools/fit_math.py

Prints the largest weighted error and the coefficients, lowest degree first, rounded to float.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]


def minimax(function: Function, low: float, high: float, degree: int, weight: Function) -> tuple[np.ndarray, float]:
    """The polynomial whose largest weighted error on an interval is least, nearly."""
    count = 4000
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    y, w = function(x), weight(x)
    share = np.ones(count) / count
    for _ in range(60):
        scale = np.sqrt(share) * w
        coefficients = np.linalg.lstsq(
            np.vander(x, degree + 1, increasing=True) * scale[:, None], y * scale, rcond=None
        )[0]
        error = np.abs((np.polyval(coefficients[::-1], x) - y) * w)
        share = share * error
        share /= share.sum()
    return coefficients, float(error.max())


erf, erfc = np.vectorize(math.erf), np.vectorize(math.erfc)


def exp_slope(r: np.ndarray) -> np.ndarray:
    """(e^r - 1) / r"""
    return np.where(np.abs(r) < 1e-4, 1 + r / 2 + r * r / 6, np.expm1(r) / (r + 1e-300))


def log2_normal(t: np.ndarray) -> np.ndarray:
    """log2 of the normal distribution below -t"""
    return np.log2(0.5 * erfc(t / math.sqrt(2)))


def tanh_rest(s: np.ndarray) -> np.ndarray:
    """(tanh(x) / x - 1) / s with s = x^2"""
    x = np.sqrt(s)
    return np.where(s < 1e-4, -1 / 3 + 2 * s / 15 - 17 * s * s / 315, (np.tanh(x) / (x + 1e-300) - 1) / (s + 1e-300))


def erf_rest(s: np.ndarray) -> np.ndarray:
    """erf(x) / x - 1 with s = x^2"""
    x = np.sqrt(s)
    return np.where(s < 1e-8, 2 / math.sqrt(math.pi) - 1, erf(x) / (x + 1e-300) - 1)


def log_rest(f: np.ndarray) -> np.ndarray:
    """(log(1 + f) - f + f^2 / 2) / f^3"""
    near = 1 / 3 - f / 4 + f * f / 5 - f**3 / 6 + f**4 / 7
    return np.where(np.abs(f) < 2e-3, near, (np.log1p(f) - f + f * f / 2) / (f**3 + 1e-300))


HALF = math.log(2) / 2 * 1.002
FITS: dict[str, tuple[Function, float, float, int, Function]] = {
    "exp, expm1": (exp_slope, -HALF, HALF, 5, np.abs),
    "2^r": (np.exp2, -0.501, 0.501, 5, np.ones_like),
    "log2 of the normal distribution": (log2_normal, 0, 6, 7, lambda t: np.maximum(erfc(t / math.sqrt(2)), 1e-3)),
    "tanh near 0": (tanh_rest, 0, 0.36, 4, lambda s: s),
    "erf near 0": (erf_rest, 0, 0.8649, 6, np.ones_like),
    "log erfc": (lambda t: np.log(erfc(t)), 0.9, 3.95, 7, erfc),
    "log": (log_rest, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 8, lambda f: f * f),
}

if __name__ == "__main__":
    for name, fit in FITS.items():
        found, error = minimax(*fit)
        print(f"{name}: error {error:.3g}, {[float(np.float32(c)) for c in found]}")
