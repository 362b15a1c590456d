"""Reductions, scans, sorts: results are contiguous unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, Size, dense, is_dense, like_strides, meta_of
from stoker.fake.promote import REAL_OF, float_dtype
from stoker.fake.rule import decline_if, rule
from stoker.fake.rules.view import wrap
from stoker.fake.tensor import FakeTensor


def _named(dim: Any, rank: int) -> Sequence[int]:
    """The dimensions named; None or an empty list names all."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return range(rank)
    return dim if isinstance(dim, (list, tuple)) else [dim]


def reduced_sizes(sizes: tuple[Size, ...], dim: Any, keepdim: bool) -> tuple[Size, ...]:
    """Sizes after reducing the dimensions named."""
    rank = len(sizes)
    dims = [wrap(d, rank) for d in _named(dim, rank)]
    named = set(dims)
    decline_if(len(named) != len(dims))
    if keepdim:
        return tuple(1 if i in named else s for i, s in enumerate(sizes))
    return tuple(s for i, s in enumerate(sizes) if i not in named)


def _integral_sum(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def _reduce(x: FakeTensor, dim: Any, keepdim: bool, dtype: torch.dtype) -> Meta:
    return dense(x.meta, reduced_sizes(x.meta.sizes, dim, keepdim), dtype)


@rule("sum", "nansum", "prod")
def total(x: FakeTensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Meta:
    """Integers are summed as int64."""
    return _reduce(x, dim, keepdim, dtype or _integral_sum(x.meta.dtype))


@rule("mean")
def mean(x: FakeTensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Meta:
    """Only of numbers that have fractions."""
    dtype = dtype or x.meta.dtype
    decline_if(not (dtype.is_floating_point or dtype.is_complex))
    return _reduce(x, dim, keepdim, dtype)


@rule("amax", "amin", "max.default", "min.default", "median.default", "nanmedian.default")
def extreme(x: FakeTensor, dim: Any = (), keepdim: bool = False) -> Meta:
    _not_empty(x, dim)
    return _reduce(x, dim, keepdim, x.meta.dtype)


@rule("any", "all")
def truth(x: FakeTensor, dim: Any = None, keepdim: bool = False) -> Meta:
    """bool, except of bytes."""
    decline_if(isinstance(dim, (list, tuple)) and not dim)
    return _reduce(x, dim, keepdim, torch.uint8 if x.meta.dtype is torch.uint8 else torch.bool)


def _not_empty(x: FakeTensor, dim: Any) -> None:
    sizes = x.meta.sizes
    decline_if(any(sizes[wrap(d, len(sizes))] == 0 for d in _named(dim, len(sizes)) if sizes))


@rule("argmax", "argmin")
def arg_extreme(x: FakeTensor, dim: int | None = None, keepdim: bool = False) -> Meta:
    decline_if(x.meta.dtype is torch.bool or x.meta.dtype.is_complex)
    _not_empty(x, dim)
    return _reduce(x, dim, keepdim, torch.int64)


@rule("max.dim", "min.dim", "median.dim", "nanmedian.dim", "mode")
def with_index(x: FakeTensor, dim: int = -1, keepdim: bool = False) -> tuple[Meta, Meta]:
    """A value of one dimension, and where it is."""
    _not_empty(x, dim)
    return _reduce(x, dim, keepdim, x.meta.dtype), _reduce(x, dim, keepdim, torch.int64)


@rule("kthvalue")
def kthvalue(x: FakeTensor, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Meta, Meta]:
    decline_if(not 1 <= k <= (x.meta.sizes[wrap(dim, len(x.meta.sizes))] if x.meta.sizes else 1))
    return with_index(x, dim, keepdim)


@rule("aminmax")
def aminmax(x: FakeTensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Meta, Meta]:
    _not_empty(x, dim)
    meta = _reduce(x, dim, keepdim, x.meta.dtype)
    return meta, meta


@rule("var.correction", "std.correction")
def variance(x: FakeTensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Meta:
    """Real, even of complex numbers."""
    dtype = x.meta.dtype
    decline_if(not (dtype.is_floating_point or dtype.is_complex))
    return _reduce(x, dim, keepdim, REAL_OF.get(dtype, dtype))


@rule("var_mean.correction", "std_mean.correction")
def variance_and_mean(
    x: FakeTensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Meta, Meta]:
    spread = variance(x, dim, correction=correction, keepdim=keepdim)
    return spread, _reduce(x, dim, keepdim, x.meta.dtype)


@rule("linalg_vector_norm")
def vector_norm(
    x: FakeTensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Meta:
    """Real, even of complex numbers."""
    kind = dtype or x.meta.dtype
    decline_if(not (kind.is_floating_point or kind.is_complex))
    return _reduce(x, dim, keepdim, REAL_OF.get(kind, kind))


@rule("logsumexp")
def logsumexp(x: FakeTensor, dim: Any, keepdim: bool = False) -> Meta:
    """Never integral."""
    return _reduce(x, dim, keepdim, float_dtype(x.meta.dtype))


@rule("count_nonzero.dim_IntList")
def count_nonzero(x: FakeTensor, dim: Any) -> Meta:
    return _reduce(x, dim, False, torch.int64)


@rule("cumsum", "cumprod")
def scan(x: FakeTensor, dim: int, *, dtype: torch.dtype | None = None) -> Meta:
    """Running totals; integers run as int64."""
    wrap(dim, len(x.meta.sizes))
    return dense(x.meta, dtype=dtype or _integral_sum(x.meta.dtype))


@rule("logcumsumexp")
def logcumsumexp(x: FakeTensor, dim: int) -> Meta:
    wrap(dim, len(x.meta.sizes))
    return dense(x.meta)


@rule("cummax", "cummin")
def scan_with_index(x: FakeTensor, dim: int) -> tuple[Meta, Meta]:
    wrap(dim, len(x.meta.sizes))
    return (dense(x.meta), dense(x.meta, dtype=torch.int64))


@rule("_softmax", "_log_softmax")
def softmax(x: FakeTensor, dim: int, half_to_float: bool) -> Meta:
    """Contiguous, like no other element-wise operator."""
    wrap(dim, len(x.meta.sizes))
    decline_if(half_to_float and x.meta.dtype is not torch.float16 and x.meta.device.type == "cuda")
    dtype = torch.float32 if half_to_float else x.meta.dtype
    decline_if(not dtype.is_floating_point)
    return dense(x.meta, dtype=dtype)


@rule("_safe_softmax")
def safe_softmax(x: FakeTensor, dim: int, dtype: torch.dtype | None = None) -> Meta:
    """Softmax that gives zeros for rows without any finite element."""
    wrap(dim, len(x.meta.sizes))
    return dense(x.meta, dtype=dtype or x.meta.dtype)


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(grad: FakeTensor, output: FakeTensor, dim: int, input_dtype: torch.dtype) -> Meta:
    """Contiguous, of the input's type."""
    return dense(grad.meta, dtype=input_dtype)


@rule("sort")
def sort(x: FakeTensor, *args: Any, **kwargs: Any) -> tuple[Meta, Meta]:
    """Values and where they came from, laid out like x."""
    m = x.meta
    strides = m.strides if is_dense(m.sizes, m.strides) else like_strides(m.sizes, m.strides)
    return meta_of(m.dtype, m.sizes, strides, m.device), meta_of(torch.int64, m.sizes, strides, m.device)


@rule("topk")
def topk(x: FakeTensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Meta, Meta]:
    m = x.meta
    dim = wrap(dim, len(m.sizes))
    decline_if(k < 0 or k > (m.sizes[dim] if m.sizes else 1))
    sizes = (*m.sizes[:dim], k, *m.sizes[dim + 1 :]) if m.sizes else ()
    return dense(m, sizes), dense(m, sizes, torch.int64)


@rule("trace")
def trace(x: FakeTensor) -> Meta:
    decline_if(len(x.meta.sizes) != 2)
    return dense(x.meta, (), _integral_sum(x.meta.dtype))


@rule("histc")
def histc(x: FakeTensor, bins: Size = 100, min: Any = 0, max: Any = 0) -> Meta:
    decline_if(not x.meta.dtype.is_floating_point)
    return dense(x.meta, (bins,))
