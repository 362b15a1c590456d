"""Fit the polynomials of stoker/codegen/cpp/math.h.

    python tools/fit_math.py

For float: weighted minimax by Lawson's iteration; prints the largest weighted error and the coefficients, lowest degree first,
rounded to float. For both types (`Fits` of math.h): Chebyshev fits in many digits, highest degree first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
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


def _rest(function: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    """(f(x) / x - 1) / s with s = x^2"""

    def of(s: mp.mpf) -> mp.mpf:
        x = mp.sqrt(max(s, mp.mpf(10) ** -12))
        return (function(x) / x - 1) / x**2

    return of


def _cos_rest(s: mp.mpf) -> mp.mpf:
    """(cos(x) - 1 + s / 2) / s^2 with s = x^2"""
    s = max(s, mp.mpf(10) ** -9)
    return (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2


def _exp_rest(r: mp.mpf) -> mp.mpf:
    """(e^r - 1 - r) / r^2"""
    return (mp.expm1(r) - r) / r**2 if abs(r) > 1e-8 else mp.mpf(1) / 2 + r / 6


LONG_FITS: dict[str, tuple[Callable[[mp.mpf], mp.mpf], float, float, tuple[int, ...]]] = {
    "asin": (_rest(mp.asin), 0, 0.2501, (5, 12)),
    "atan": (_rest(mp.atan), 0, math.tan(math.pi / 8) ** 2 * 1.001, (4, 10)),
    "sin": (_rest(mp.sin), 0, (math.pi / 4) ** 2 * 1.001, (3, 6)),
    "cos": (_cos_rest, 0, (math.pi / 4) ** 2 * 1.001, (2, 6)),
    "exp": (_exp_rest, -HALF, HALF, (9,)),
}
"""Function, interval, degrees."""

if __name__ == "__main__":
    mp.mp.dps = 40
    for name, (function, low, high, degrees) in LONG_FITS.items():
        for degree in degrees:
            terms, off = mp.chebyfit(function, [mp.mpf(low), mp.mpf(high)], degree + 1, error=True)
            print(f"{name}, degree {degree}: error {mp.nstr(off, 3)}, {[float(c) for c in terms]}")
    for name, fit in FITS.items():
        found, error = minimax(*fit)
        print(f"{name}: error {error:.3g}, {[float(np.float32(c)) for c in found]}")
