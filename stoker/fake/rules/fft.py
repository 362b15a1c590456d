"""Fourier transforms on the CPU by MKL: results lie with the transformed dimensions innermost."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, meta_of
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_TOGETHER = 7
"""How many dimensions MKL transforms at once; more are done in several steps."""
_REAL = {wide: narrow for narrow, wide in _COMPLEX.items()}


def _ours(x: FakeTensor, dims: Sequence[int]) -> list[int]:
    """The dimensions from the front, if MKL will do it and the order of memory is known."""
    decline_if(x.meta.device.type != "cpu" or not dims or not torch.backends.mkl.is_available())
    decline_if(any(s == 0 for s in x.meta.sizes))
    return [d % len(x.meta.sizes) for d in dims]


def _falling(strides: Sequence[Any], dims: Sequence[int]) -> list[int]:
    """Dimensions by their strides, the largest first; symbolic ones are compared, not converted."""

    def compare(a: int, b: int) -> int:
        if strides[a] is strides[b]:
            return 0
        return -1 if strides[a] > strides[b] else int(bool(strides[a] < strides[b]))

    return sorted(dims, key=functools.cmp_to_key(compare))


def _strides(sizes: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Dense strides, the first of the order slowest."""
    result, step = [0] * len(sizes), 1
    for d in reversed(order):
        result[d] = step
        step *= sizes[d]
    return tuple(result)


def _order(strides: Sequence[Any], dims: list[int], last: list[int]) -> list[int]:
    batch = [d for d in range(len(strides)) if d not in dims and d not in last]
    return _falling(strides, batch) + _falling(strides, dims) + last


@rule("_fft_c2c.default")
def complex_to_complex(x: FakeTensor, dim: Sequence[int], normalization: int, forward: bool) -> Meta:
    """Of the same sizes."""
    dims, m = _ours(x, dim), x.meta
    decline_if(m.dtype not in _REAL or len(dims) > _TOGETHER)
    return meta_of(m.dtype, m.sizes, _strides(m.sizes, _order(m.strides, dims, [])), m.device)


@rule("_fft_r2c.default")
def real_to_complex(x: FakeTensor, dim: Sequence[int], normalization: int, onesided: bool) -> Meta:
    """Half of the last dimension, or all of it."""
    dims, m = _ours(x, dim), x.meta
    decline_if(m.dtype not in _COMPLEX)
    sizes = tuple(s // 2 + 1 if onesided and d == dims[-1] else s for d, s in enumerate(m.sizes))
    order = _order(m.strides, dims[:-1], dims[-1:])
    return meta_of(_COMPLEX[m.dtype], sizes, _strides(sizes, order), m.device)


@rule("_fft_c2r.default")
def complex_to_real(x: FakeTensor, dim: Sequence[int], normalization: int, last: Any) -> Meta:
    """All dimensions but the last as complex numbers, then the last."""
    dims, m = _ours(x, dim), x.meta
    decline_if(m.dtype not in _REAL)
    strides = _strides(m.sizes, _order(m.strides, dims[:-1], [])) if len(dims) > 1 else m.strides
    sizes = tuple(last if d == dims[-1] else s for d, s in enumerate(m.sizes))
    return meta_of(_REAL[m.dtype], sizes, _strides(sizes, _order(strides, [], dims[-1:])), m.device)
