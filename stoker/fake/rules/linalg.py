"""LAPACK's factorizations and solvers, and histograms: operators without a meta kernel whose shapes do not depend on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, Size, dense, is_empty, is_untold, meta_of, same
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor, data_dependent


def _by_columns(
    x: FakeTensor, batch: Sequence[Size], rows: Size, columns: Size, leading: Size, dtype: torch.dtype | None = None
) -> Meta:
    """Matrices as LAPACK leaves them: each column dense, `leading` elements from one to the next."""
    strides: list[Size] = []
    step: Size = leading * (columns if isinstance(columns, torch.SymInt) else max(columns, 1))
    for size in reversed(batch):
        strides.insert(0, step)
        step = step * size
    return meta_of(dtype or x.meta.dtype, (*batch, rows, columns), (*strides, 1, leading), x.meta.device)


def _known(*sizes: Size) -> None:
    """Decline what is empty, and what only data tells."""
    decline_if(any(is_untold(size) or size == 0 for size in sizes))


@rule("geqrf.default")
def geqrf(a: FakeTensor) -> tuple[Meta, Meta]:
    """R above the diagonal, reflectors below it, and their factors."""
    decline_if(len(a.meta.sizes) < 2)
    *batch, m, n = a.meta.sizes
    if not any(isinstance(size, torch.SymInt) for size in (m, n, *batch)):
        return _by_columns(a, batch, m, n, max(m, 1)), dense(a.meta, (*batch, min(m, n)))
    _known(m, n, *batch)
    return _by_columns(a, batch, m, n, m), dense(a.meta, (*batch, torch.sym_min(m, n)))


@rule("_linalg_svd.default")
def svd(a: FakeTensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """U, S and Vh. On the CPU all matrices lie by columns, which torch's own rule says of U alone."""
    decline_if(len(a.meta.sizes) < 2 or a.meta.device.type != "cpu" or not compute_uv)
    *batch, m, n = a.meta.sizes
    _known(m, n, *batch)
    k, real = torch.sym_min(m, n), a.meta.dtype.to_real()
    u, v = (m, n) if full_matrices else (k, k)
    return (_by_columns(a, batch, m, u, m), dense(a.meta, (*batch, k), real), _by_columns(a, batch, v, n, v))


@rule("linalg_eig.default")
def eig(a: FakeTensor) -> tuple[Meta, Meta]:
    """Eigenvalues, and eigenvectors by columns; complex, whatever the matrix is."""
    decline_if(len(a.meta.sizes) < 2)
    decline_if(a.meta.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128))
    *batch, m, n = a.meta.sizes
    _known(m, n, *batch)
    decline_if(m != n)
    dtype = a.meta.dtype.to_complex()
    return dense(a.meta, (*batch, n), dtype), _by_columns(a, batch, n, n, n, dtype)


@rule("linalg_lstsq.default")
def lstsq(
    a: FakeTensor, b: FakeTensor, rcond: Any = None, *, driver: str | None = None
) -> tuple[Meta, Meta, Meta, Meta]:
    """Solution, residuals, rank, singular values. Drivers that find the rank give residuals only where it is full."""
    driver = driver or "gelsy"
    vector = len(a.meta.sizes) == 2 and len(b.meta.sizes) == 1
    decline_if(a.meta.device.type != "cpu" or a.meta.dtype is not b.meta.dtype or len(a.meta.sizes) < 2)
    decline_if(not vector and len(b.meta.sizes) != len(a.meta.sizes))
    *batch, m, n = a.meta.sizes
    k: Size = 1 if vector else b.meta.sizes[-1]
    _known(m, n, k, *batch)
    decline_if(tuple(b.meta.sizes) != ((m,) if vector else (*batch, m, k)))
    if driver in ("gelsd", "gelss") and m > n:
        raise data_dependent(f"linalg.lstsq with driver={driver!r}")
    nothing = dense(a.meta, (0,))
    solution = _by_columns(a, batch, n, k, torch.sym_max(m, n))
    if vector:
        solution = dense(a.meta, (n,))
    residuals = dense(a.meta, (*batch, k)) if driver == "gels" and m > n else nothing
    rank = dense(a.meta, (0,) if driver == "gels" else batch, torch.int64)
    real = torch.empty((), dtype=a.meta.dtype, device="meta").real.dtype if a.meta.dtype.is_complex else a.meta.dtype
    singular = (*batch, torch.sym_min(m, n)) if driver in ("gelsd", "gelss") else (0,)
    return solution, residuals, rank, dense(a.meta, singular, real)


@rule("linalg_solve_triangular.default")
def solve_triangular(
    a: FakeTensor, b: FakeTensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Meta:
    """By columns, as BLAS leaves it; for one batch of matrices that both have."""
    sizes = b.meta.sizes
    decline_if(len(a.meta.sizes) < 2 or len(sizes) != len(a.meta.sizes) or a.meta.dtype is not b.meta.dtype)
    decline_if(not same(a.meta.sizes[:-2], sizes[:-2]) or is_empty((*a.meta.sizes, *sizes)))
    decline_if(a.meta.sizes[-1] != a.meta.sizes[-2] or a.meta.sizes[-1] != sizes[-2 if left else -1])
    return _by_columns(b, sizes[:-2], sizes[-2], sizes[-1], sizes[-2])


@rule("diag_embed.default")
def diag_embed(x: FakeTensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Meta:
    """Zeros with one dimension more, the last of x on a diagonal."""
    rank = len(x.meta.sizes) + 1
    decline_if(rank < 2 or not (-rank <= dim1 < rank and -rank <= dim2 < rank) or dim1 % rank == dim2 % rank)
    sizes = list(x.meta.sizes[:-1])
    for dim in sorted((dim1 % rank, dim2 % rank)):
        sizes.insert(dim, x.meta.sizes[-1] + abs(offset))
    return dense(x.meta, sizes)


@rule("histogram.bin_ct")
def histogram(x: FakeTensor, bins: int = 100, **options: Any) -> tuple[Meta, Meta]:
    return dense(x.meta, (bins,)), dense(x.meta, (bins + 1,))


@rule("histogram.bins_tensor")
def histogram_of_edges(x: FakeTensor, bins: FakeTensor, **options: Any) -> tuple[Meta, Meta]:
    decline_if(len(bins.meta.sizes) != 1)
    (edges,) = bins.meta.sizes
    return dense(x.meta, (edges - 1,)), dense(x.meta, (edges,), bins.meta.dtype)


def _require_a_count_each(x: FakeTensor, bins: Sequence[Any]) -> None:
    if not x.meta.sizes or x.meta.sizes[-1] != len(bins):
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")


@rule("_histogramdd_bin_edges.default")
def histogramdd_edges(x: FakeTensor, bins: Sequence[int], **options: Any) -> list[Meta]:
    """The borders of bins, for each dimension."""
    _require_a_count_each(x, bins)
    return [dense(x.meta, (count + 1,)) for count in bins]


@rule("_histogramdd_from_bin_cts.default")
def histogramdd(x: FakeTensor, bins: Sequence[int], **options: Any) -> Meta:
    _require_a_count_each(x, bins)
    return dense(x.meta, tuple(bins))


@rule("_histogramdd_from_bin_tensors.default")
def histogramdd_of_edges(x: FakeTensor, bins: Sequence[FakeTensor], **options: Any) -> Meta:
    _require_a_count_each(x, bins)
    return dense(x.meta, tuple(edges.meta.sizes[0] - 1 for edges in bins))
