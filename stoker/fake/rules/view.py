"""Views: other sizes, strides and offset over the same memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.meta import (
    Meta,
    Size,
    contiguous_strides,
    dense,
    is_always_one,
    is_contiguous,
    is_untold,
    meta_of,
    of_layout,
    product,
    same,
    surely_empty,
    surely_same,
)
from stoker.fake.promote import REAL_OF, complex_of
from stoker.fake.rule import IMPURE, Decline, ViewOf, decline_if, rule
from stoker.fake.tensor import FakeTensor
from stoker.shape.symnode import size_of


def view_of(x: FakeTensor, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None) -> ViewOf:
    """A view of x."""
    m = x.meta
    return ViewOf(meta_of(m.dtype, sizes, strides, m.device, m.offset if offset is None else offset), x)


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from the start; a 0-d tensor has one to name."""
    rank = rank or 1
    decline_if(not -rank <= dim < rank)
    return dim % rank


def _dimension(x: FakeTensor, dim: int) -> int:
    """The same, of a tensor that has dimensions."""
    decline_if(not x.meta.sizes)
    return wrap(dim, len(x.meta.sizes))


def without(values: Sequence[Size], i: int) -> tuple[Size, ...]:
    """All but the i-th."""
    return (*values[:i], *values[i + 1 :])


def inferred(sizes: Sequence[Size], count: Size) -> tuple[Size, ...]:
    """Sizes with the one -1 replaced by what makes `count` elements."""
    unknown = [i for i, s in enumerate(sizes) if type(s) is int and s == -1]
    if not unknown:
        decline_if(product(sizes) != count or any(type(s) is int and s < 0 for s in sizes))
        return tuple(sizes)
    decline_if(len(unknown) > 1)
    known = product([s for i, s in enumerate(sizes) if i != unknown[0]])
    decline_if(known == 0 or count % known != 0)
    return tuple(count // known if i == unknown[0] else s for i, s in enumerate(sizes))


@of_layout
def viewed_strides(sizes: Sequence[Size], strides: Sequence[Size], wanted: Sequence[Size]) -> tuple[Size, ...] | None:
    """Strides under which the same memory has the sizes `wanted`, or None if only a copy has.

    Old dimensions are grouped into runs without gaps; each run must be the product of consecutive new dimensions. What holds for
    large sizes holds for others: dimensions of one element, or none, only allow more.
    """
    if any(map(surely_empty, sizes)):
        return tuple(strides) if same(sizes, wanted) else contiguous_strides(wanted)
    if is_contiguous(sizes, strides) and not _is_odd(sizes, strides):
        return contiguous_strides(wanted)
    result: list[Size] = [1] * len(wanted)
    new = len(wanted) - 1
    run: Size = 1
    step: Size = strides[-1]
    for old in range(len(sizes) - 1, -1, -1):
        run = run * sizes[old]
        joined = old > 0 and (sizes[old - 1] == 1 or strides[old - 1] == run * step)
        if joined:
            continue
        covered: Size = 1
        while new >= 0 and (wanted[new] == 1 or covered != run):
            result[new] = covered * step
            covered = covered * wanted[new]
            new -= 1
        if covered != run:
            return None
        if old > 0:
            run, step = 1, strides[old - 1]
    return tuple(result) if new < 0 else None


def _is_odd(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Has a dimension of one element, of a contiguous tensor, a stride that would not be computed for it? A view may show it."""
    usual = contiguous_strides(sizes)
    return any(type(n) is int and n == 1 and not surely_same([a], [b]) for n, a, b in zip(sizes, strides, usual))


@rule("view.default")
def view(x: FakeTensor, size: Sequence[Size]) -> ViewOf:
    """Other sizes, if the memory allows."""
    m = x.meta
    sizes = inferred(size, product(m.sizes))
    strides = viewed_strides(m.sizes, m.strides, sizes)
    if strides is None and not any(map(is_untold, (*m.sizes, *m.strides, *sizes))):
        raise RuntimeError(NOT_IN_ONE_PIECE)
    if strides is None:
        raise Decline
    return view_of(x, sizes, strides)


NOT_IN_ONE_PIECE = (
    "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
    "subspaces). Use .reshape(...) instead."
)
"""What eager says of a view that the memory does not allow. torch's own rule for sizes that vary may take it to be one."""


@rule("_unsafe_view")
def unsafe_view(x: FakeTensor, size: Sequence[Size]) -> Meta:
    """A view that autograd does not count as one: the caller made x for it alone."""
    found: ViewOf = view(x, size)
    return found.meta


@rule("view_copy.default")
def view_copy(x: FakeTensor, size: Sequence[Size]) -> Meta:
    return dense(x.meta, inferred(size, product(x.meta.sizes)))


@rule("_reshape_alias")
def reshape_alias(x: FakeTensor, size: Sequence[Size], stride: Sequence[Size]) -> ViewOf:
    """A view whose strides the caller worked out."""
    return view_of(x, size, stride)


@rule("as_strided")
def as_strided(
    x: FakeTensor, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> ViewOf:
    """Any view of the memory."""
    decline_if(len(size) != len(stride))
    return view_of(x, size, stride, storage_offset)


@rule("alias", "detach", "lift_fresh", "_fw_primal", "_conj", "_neg_view")
def alias(x: FakeTensor, *rest: Any) -> ViewOf:
    """The same view again. That elements are conjugated or negated when they are read is of no consequence to metadata."""
    return ViewOf(x.meta, x)


@rule("t")
def t(x: FakeTensor) -> ViewOf:
    """A matrix transposed; vectors stay."""
    m = x.meta
    decline_if(len(m.sizes) > 2)
    return view_of(x, m.sizes[::-1], m.strides[::-1])


@rule("transpose.int")
def transpose(x: FakeTensor, dim0: int, dim1: int) -> ViewOf:
    m = x.meta
    if not m.sizes:
        return alias(x)
    a, b = wrap(dim0, len(m.sizes)), wrap(dim1, len(m.sizes))
    order = list(range(len(m.sizes)))
    order[a], order[b] = b, a
    return permute(x, order)


@rule("permute")
def permute(x: FakeTensor, dims: Sequence[int]) -> ViewOf:
    m = x.meta
    order = [wrap(d, len(m.sizes)) for d in dims]
    decline_if(len(order) != len(m.sizes) or len(set(order)) != len(order))
    return view_of(x, [m.sizes[i] for i in order], [m.strides[i] for i in order])


@rule("expand")
def expand(x: FakeTensor, size: Sequence[Size], *, implicit: bool = False) -> ViewOf:
    m = x.meta
    lead = len(size) - len(m.sizes)
    decline_if(lead < 0)
    sizes: list[Size] = list(size)
    strides: list[Size] = [0] * len(size)
    for i in range(len(size) - 1, -1, -1):
        old = m.sizes[i - lead] if i >= lead else 1
        if type(sizes[i]) is int and sizes[i] == -1 and i >= lead:
            sizes[i] = old
        decline_if(type(sizes[i]) is int and sizes[i] < 0)
        if i >= lead and (_is_same(sizes[i], old) or old != 1 or _is_one(sizes[i])):
            decline_if(not _is_same(sizes[i], old) and sizes[i] != old)
            strides[i] = m.strides[i - lead]
        elif i < lead and m.sizes:  # a tensor without dimensions has no stride that could be kept
            strides[i] = _stride_of_added(sizes, strides, i) if _is_one(sizes[i]) else 0
    return view_of(x, sizes, strides)


def _is_same(a: Size, b: Size) -> bool:
    """Are they one expression, whatever it is?"""
    return a is b or isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt) and size_of(a) is size_of(b)


def _is_one(size: Size) -> bool:
    """Of a size that only data tells: no, because strides of one element are free."""
    return not is_untold(size) and is_always_one(size)


def _stride_of_added(sizes: list[Size], strides: list[Size], i: int) -> Size:
    """A new leading dimension of one element gets the stride that keeps the tensor looking contiguous."""
    return 1 if i == len(sizes) - 1 else sizes[i + 1] * strides[i + 1]


@rule("slice.Tensor")
def slice_(x: FakeTensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1) -> ViewOf:
    """A range of one dimension; bounds are clipped to it."""
    m = x.meta
    dim = _dimension(x, dim)
    size = m.sizes[dim]
    decline_if(step <= 0)
    low, high = slice_bounds(size, start, end)
    length = high - low if type(step) is int and step == 1 else (high - low + step - 1) // step
    sizes = (*m.sizes[:dim], length, *m.sizes[dim + 1 :])
    strides = (*m.strides[:dim], m.strides[dim] * step, *m.strides[dim + 1 :])
    return view_of(x, sizes, strides, m.offset + low * m.strides[dim])


def slice_bounds(size: Size, start: Size | None, end: Size | None) -> tuple[Size, Size]:
    """Python's reading of a slice, as offsets with 0 <= low <= high <= size."""
    low: Size = 0 if start is None else start
    if any(map(is_untold, (size, low, end))):
        return _untold_bounds(size, low, end)
    if not (type(low) is int and low == 0):
        if low < 0:
            low = low + size
        if low < 0:
            low = 0
        elif low > size:
            low = size
    if end is None or (type(end) is int and end == sys.maxsize) or end is size:
        return low, size
    high = end
    if high < 0:
        high = high + size
    if high < low:
        high = low
    elif high > size:
        high = size
    return low, high


def _untold_bounds(size: Size, low: Size, end: Size | None) -> tuple[Size, Size]:
    """The same where only data tells how the numbers stand to each other: asked is no more than their signs."""
    if not (type(low) is int and low == 0):
        low = torch.sym_max(low + size, 0) if low < 0 else torch.sym_min(low, size)
    if end is None or (type(end) is int and end == sys.maxsize):
        return low, size
    return low, torch.sym_max(end + size if end < 0 else torch.sym_min(end, size), low)


@rule("select.int")
def select(x: FakeTensor, dim: int, index: Size) -> ViewOf:
    m = x.meta
    dim = _dimension(x, dim)
    size = m.sizes[dim]
    decline_if(index < -size or index >= size)
    if index < 0:
        index = index + size
    return view_of(x, without(m.sizes, dim), without(m.strides, dim), m.offset + index * m.strides[dim])


@rule("unsqueeze")
def unsqueeze(x: FakeTensor, dim: int) -> ViewOf:
    m = x.meta
    dim = wrap(dim, len(m.sizes) + 1)
    stride = 1 if dim == len(m.sizes) else m.sizes[dim] * m.strides[dim]
    return view_of(x, (*m.sizes[:dim], 1, *m.sizes[dim:]), (*m.strides[:dim], stride, *m.strides[dim:]))


@rule("squeeze")
def squeeze(x: FakeTensor, dim: Any = None) -> ViewOf:
    m = x.meta
    rank = len(m.sizes)
    named = range(rank) if dim is None else {wrap(d, rank) for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    kept = [i for i in range(rank) if i not in named or m.sizes[i] != 1]
    return view_of(x, [m.sizes[i] for i in kept], [m.strides[i] for i in kept])


@rule("diagonal")
def diagonal(x: FakeTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ViewOf:
    m = x.meta
    a, b = wrap(dim1, len(m.sizes)), wrap(dim2, len(m.sizes))
    decline_if(a == b)
    rows, columns = m.sizes[a], m.sizes[b]
    length = torch.sym_min(rows, columns - offset) if offset >= 0 else torch.sym_min(rows + offset, columns)
    length = torch.sym_max(length, 0)
    start = m.offset
    if length != 0:
        start = start + (offset * m.strides[b] if offset >= 0 else -offset * m.strides[a])
    kept = [i for i in range(len(m.sizes)) if i not in (a, b)]
    sizes = [*(m.sizes[i] for i in kept), length]
    return view_of(x, sizes, [*(m.strides[i] for i in kept), m.strides[a] + m.strides[b]], start)


@rule("unfold")
def unfold(x: FakeTensor, dimension: int, size: Size, step: Size) -> ViewOf:
    m = x.meta
    dim = _dimension(x, dimension)
    decline_if(size > m.sizes[dim] or step <= 0 or size < 0)
    windows = (m.sizes[dim] - size) // step + 1
    sizes = (*m.sizes[:dim], windows, *m.sizes[dim + 1 :], size)
    return view_of(x, sizes, (*m.strides[:dim], m.strides[dim] * step, *m.strides[dim + 1 :], m.strides[dim]))


@rule("split.Tensor", "unsafe_split.Tensor")
def split(x: FakeTensor, split_size: Size, dim: int = 0) -> list[ViewOf]:
    """Equal pieces of one dimension; the last may be smaller."""
    m = x.meta
    dim = _dimension(x, dim)
    size = m.sizes[dim]
    decline_if(split_size < 0 or (split_size == 0 and size != 0))
    if split_size == 0 or split_size >= size:
        return [slice_(x, dim, 0, size)]
    count = int((size + split_size - 1) // split_size)
    lengths = [*[split_size] * (count - 1), size - split_size * (count - 1)]
    places = [m.offset + i * split_size * m.strides[dim] for i in range(count)]
    return [view_of(x, _with_size(m, dim, n), m.strides, place) for n, place in zip(lengths, places)]


def _with_size(m: Meta, dim: int, size: Size) -> tuple[Size, ...]:
    return (*m.sizes[:dim], size, *m.sizes[dim + 1 :])


@rule("split_with_sizes", "unsafe_split_with_sizes")
def split_with_sizes(x: FakeTensor, split_sizes: Sequence[Size], dim: int = 0) -> list[ViewOf]:
    m = x.meta
    dim = _dimension(x, dim)
    decline_if(any(s < 0 for s in split_sizes) or sum(split_sizes) != m.sizes[dim])
    pieces, start = [], 0
    for length in split_sizes:
        sizes = (*m.sizes[:dim], length, *m.sizes[dim + 1 :])
        pieces.append(view_of(x, sizes, m.strides, m.offset + start * m.strides[dim]))
        start = start + length
    return pieces


@rule("unbind.int")
def unbind(x: FakeTensor, dim: int = 0) -> list[ViewOf]:
    return [select(x, dim, i) for i in range(int(x.meta.sizes[_dimension(x, dim)]))]


@rule("view.dtype")
def view_dtype(x: FakeTensor, dtype: torch.dtype) -> ViewOf:
    """The same bytes read as another type."""
    m = x.meta
    if dtype.itemsize == m.dtype.itemsize:
        return ViewOf(meta_of(dtype, m.sizes, m.strides, m.device, m.offset), x)
    decline_if(not m.sizes or m.strides[-1] != 1)
    if dtype.itemsize < m.dtype.itemsize:
        ratio = m.dtype.itemsize // dtype.itemsize
        strides = (*(s * ratio for s in m.strides[:-1]), 1)
        return ViewOf(meta_of(dtype, (*m.sizes[:-1], m.sizes[-1] * ratio), strides, m.device, m.offset * ratio), x)
    ratio = dtype.itemsize // m.dtype.itemsize
    decline_if(any(s % ratio != 0 for s in (m.sizes[-1], m.offset, *m.strides[:-1])))
    strides = (*(s // ratio for s in m.strides[:-1]), 1)
    return ViewOf(meta_of(dtype, (*m.sizes[:-1], m.sizes[-1] // ratio), strides, m.device, m.offset // ratio), x)


@rule("view_as_real")
def view_as_real(x: FakeTensor) -> ViewOf:
    m = x.meta
    decline_if(not m.dtype.is_complex)
    strides = (*(s * 2 for s in m.strides), 1)
    return ViewOf(meta_of(REAL_OF[m.dtype], (*m.sizes, 2), strides, m.device, m.offset * 2), x)


@rule("view_as_complex")
def view_as_complex(x: FakeTensor) -> ViewOf:
    m = x.meta
    bad = not m.sizes or m.sizes[-1] != 2 or m.strides[-1] != 1 or m.offset % 2 or any(s % 2 for s in m.strides[:-1])
    decline_if(bad or m.dtype not in (torch.float16, torch.float32, torch.float64))
    strides = tuple(s // 2 for s in m.strides[:-1])
    return ViewOf(meta_of(complex_of(m.dtype), m.sizes[:-1], strides, m.device, m.offset // 2), x)


@rule("_conj", "_neg_view", table=IMPURE)
def becomes_lazy(mode: Any, func: Any, x: Any) -> Any:
    """Which tensors on this memory are such views is not followed, only that some are. Of a number that autograd conjugates a real
    tensor is made."""
    if not isinstance(x, torch.Tensor):
        with torch_private.dispatch_modes_off():
            return func(torch.tensor(x, dtype=torch.complex128)).resolve_conj().resolve_neg()
    mode.as_fake(x).memory.lazy = True
    return NotImplemented
