"""Choosing, placing and joining elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker.fake.meta import (
    Meta,
    Operand,
    Size,
    alike,
    channels_last_strides,
    contiguous_strides,
    dense,
    formatted_strides,
    in_format,
    is_untold,
    iterator_strides,
    meta_of,
    same,
    suggests_channels_last,
    surely_empty,
    surely_same,
)
from stoker.fake.promote import broadcast, common_device, result_dtype
from stoker.fake.rule import RULES, Decline, decline_if, rule
from stoker.fake.rules.view import viewed_strides, wrap
from stoker.fake.tensor import FakeTensor, data_dependent
from stoker.shape.env import DataDependent

_INTEGER = (torch.int64, torch.int32)
_MASKS = (torch.bool, torch.uint8)


def _like(x: FakeTensor) -> Meta:
    return alike(x.meta)


def _is_empty_vector(m: Meta, mixed: bool) -> bool:
    """Among vectors alone, one whose length only data tells need not be asked: it adds what it has."""
    if len(m.sizes) != 1:
        return False
    (size,) = m.sizes
    return (mixed or not is_untold(size)) and bool(size == 0)


@rule("cat")
def cat(tensors: Sequence[FakeTensor], dim: int = 0) -> Meta:
    """Joined along a dimension; empty vectors are skipped."""
    decline_if(not tensors or any(not t.meta.sizes for t in tensors))
    dtype = result_dtype(tensors)
    mixed = any(len(t.meta.sizes) != 1 for t in tensors)
    kept = [t for t in tensors if not _is_empty_vector(t.meta, mixed)]
    device = common_device(tensors)
    if not kept:
        return meta_of(dtype, (0,), None, device)
    first = kept[0].meta
    dim = wrap(dim, len(first.sizes))
    total: Size = 0
    for t in kept:
        sizes = t.meta.sizes
        decline_if(len(sizes) != len(first.sizes))
        decline_if(any(a != b for i, (a, b) in enumerate(zip(sizes, first.sizes)) if i != dim))
        total = total + sizes[dim]
    sizes = (*first.sizes[:dim], total, *first.sizes[dim + 1 :])
    return meta_of(dtype, sizes, _joined_strides(sizes, [(t.meta.sizes, t.meta.strides) for t in tensors]), device)


def _joined_strides(sizes: tuple[Size, ...], pieces: Sequence[Operand]) -> tuple[Size, ...]:
    """Channels-last if all pieces are."""
    return formatted_strides(sizes, all(suggests_channels_last(*piece) for piece in pieces))


@rule("stack")
def stack(tensors: Sequence[FakeTensor], dim: int = 0) -> Meta:
    """Joined along a dimension, which is then cut in two; a new last dimension is joined as such."""
    decline_if(not tensors or any(not same(t.meta.sizes, tensors[0].meta.sizes) for t in tensors))
    first = tensors[0].meta
    rank, count = len(first.sizes), len(tensors)
    dim = wrap(dim, rank + 1)
    sizes = (*first.sizes[:dim], count, *first.sizes[dim:])
    pieces = [(t.meta.sizes, t.meta.strides) for t in tensors]
    if all(surely_same(strides, contiguous_strides(sizes)) for sizes, strides in pieces):
        strides = contiguous_strides(sizes)
    elif dim == rank:
        strides = _joined_strides(sizes, [((*s, 1), (*t, 1)) for s, t in pieces])
    else:
        joined = (*first.sizes[:dim], first.sizes[dim] * count, *first.sizes[dim + 1 :])
        cut = viewed_strides(joined, _joined_strides(joined, pieces), sizes)
        if cut is None:
            raise Decline
        strides = cut
    return meta_of(result_dtype(tensors), sizes, strides, common_device(tensors))


@rule("embedding")
def embedding(weight: FakeTensor, indices: FakeTensor, *rest: Any, **others: Any) -> Meta:
    decline_if(len(weight.meta.sizes) != 2 or indices.meta.dtype not in _INTEGER)
    decline_if(weight.meta.device != indices.meta.device)
    return dense(weight.meta, (*indices.meta.sizes, weight.meta.sizes[1]))


@rule("embedding_dense_backward")
def embedding_backward(grad: FakeTensor, indices: FakeTensor, num_weights: Size, *rest: Any) -> Meta:
    return dense(grad.meta, (num_weights, grad.meta.sizes[-1]))


@rule("index_select")
def index_select(x: FakeTensor, dim: int, index: FakeTensor) -> Meta:
    decline_if(len(index.meta.sizes) > 1 or index.meta.dtype not in _INTEGER)
    m = x.meta
    dim = wrap(dim, len(m.sizes))
    decline_if(not m.sizes)
    count = index.meta.sizes[0] if index.meta.sizes else 1
    return dense(m, (*m.sizes[:dim], count, *m.sizes[dim + 1 :]))


@rule("gather")
def gather(x: FakeTensor, dim: int, index: FakeTensor, *, sparse_grad: bool = False) -> Meta:
    wrap(dim, len(x.meta.sizes))
    decline_if(index.meta.dtype not in _INTEGER or len(x.meta.sizes or (1,)) != len(index.meta.sizes or (1,)))
    decline_if(not _within(index, x, dim))
    return dense(x.meta, index.meta.sizes)


def _within(index: FakeTensor, other: FakeTensor, dim: int | None = None) -> bool:
    """Is an index no larger than a tensor in any dimension but `dim`? One without dimensions is taken for one with an element."""
    apart = None if dim is None else dim % (len(other.meta.sizes) or 1)
    pairs = enumerate(zip(index.meta.sizes or (1,), other.meta.sizes or (1,)))
    return _as_told(lambda: not any(i is not s and i > s for d, (i, s) in pairs if d != apart))


def _as_told(fits: Callable[[], bool]) -> bool:
    """Do sizes fit? Those that only data tells are taken to: the program raises where they do not."""
    try:
        return fits()
    except DataDependent:
        return True


@rule("scatter", "scatter_add", "scatter_reduce.two")
def scatter(x: FakeTensor, dim: int, index: FakeTensor, src: Any, *rest: Any, **others: Any) -> Meta:
    wrap(dim, len(x.meta.sizes))
    decline_if(index.meta.dtype not in _INTEGER or (isinstance(src, FakeTensor) and src.meta.dtype is not x.meta.dtype))
    decline_if(len(x.meta.sizes or (1,)) != len(index.meta.sizes or (1,)) or not _within(index, x, dim))
    if isinstance(src, FakeTensor):
        decline_if(len(src.meta.sizes or (1,)) != len(index.meta.sizes or (1,)) or not _within(index, src))
    return dense(x.meta)


@rule("index_fill")
def filled(x: FakeTensor, dim: int, index: FakeTensor, value: Any) -> Meta:
    _require_vector(x, dim, index, (torch.int64,))
    if isinstance(value, FakeTensor):
        decline_if(value.meta.sizes or (value.meta.dtype.is_complex and not x.meta.dtype.is_complex))
    elif isinstance(value, complex) and not x.meta.dtype.is_complex:
        raise Decline
    return _like(x)


@rule("index_add", "index_reduce")
def placed(x: FakeTensor, dim: int, index: FakeTensor, source: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """A copy of x with slices added to; contiguous on the CPU."""
    _require_slices(x, dim, index, source, _INTEGER)
    made = _like(x)
    return dense(made) if made.device.type == "cpu" else made


@rule("index_copy")
def placed_densely(x: FakeTensor, dim: int, index: FakeTensor, source: FakeTensor) -> Meta:
    """A contiguous copy of x with slices replaced."""
    _require_slices(x, dim, index, source, (torch.int64,))
    return dense(x.meta)


def _require_vector(x: FakeTensor, dim: int, index: FakeTensor, dtypes: Sequence[torch.dtype]) -> int:
    """That an index chooses slices along a dimension, which is told."""
    elsewhere = index.meta.device != x.meta.device and index.meta.sizes
    decline_if(len(index.meta.sizes) > 1 or index.meta.dtype not in dtypes or elsewhere)
    return wrap(dim, len(x.meta.sizes))


def _require_slices(
    x: FakeTensor, dim: int, index: FakeTensor, source: FakeTensor, dtypes: Sequence[torch.dtype]
) -> None:
    """That there is a slice of x for each index."""
    dim = _require_vector(x, dim, index, dtypes)
    wanted = list(x.meta.sizes)
    decline_if(not wanted or source.meta.dtype is not x.meta.dtype or source.meta.device != x.meta.device)
    wanted[dim] = index.meta.sizes[0] if index.meta.sizes else 1
    decline_if(not _as_told(lambda: same(source.meta.sizes, wanted)))


@rule("masked_scatter")
def scattered_by_mask(x: FakeTensor, mask: FakeTensor, source: FakeTensor) -> Meta:
    """A contiguous copy of x, which a mask may stretch, with elements replaced."""
    decline_if(mask.meta.dtype is not torch.bool or source.meta.dtype is not x.meta.dtype)
    return dense(x.meta, broadcast([x.meta.sizes, mask.meta.sizes]))


@rule("index_put", "_unsafe_index_put")
def index_put(x: FakeTensor, indices: Sequence[Any], values: FakeTensor, accumulate: bool = False) -> Meta:
    decline_if(values.meta.dtype is not x.meta.dtype or len(indices) > len(x.meta.sizes))
    given = [i for i in indices if i is not None]
    if any(i.meta.dtype in _MASKS for i in given):
        decline_if(not _masks_fit(x, indices))
        return _like(x)  # how many elements they choose, data tells
    decline_if(not given or any(i.meta.dtype not in _INTEGER for i in given))
    sizes = _Chosen.of(x.meta, indices).sizes
    decline_if(not _as_told(lambda: _stretches(values.meta.sizes, sizes)))
    return _like(x)


def _masks_fit(x: FakeTensor, indices: Sequence[Any]) -> bool:
    """Is each mask as large as the dimensions that it stands for?"""
    position, pairs = 0, []
    for i in indices:
        mask = i is not None and i.meta.dtype in _MASKS
        rank = len(i.meta.sizes) if mask else 1
        if mask:
            pairs.append((i.meta.sizes, x.meta.sizes[position : position + rank]))
        position += rank
    return all(sizes for sizes, _ in pairs) and _as_told(lambda: all(same(*pair) for pair in pairs))


def _stretches(sizes: Sequence[Size], wanted: Sequence[Size]) -> bool:
    """Can a tensor be expanded to the wanted sizes?"""
    if len(sizes) > len(wanted):
        return False
    return all(
        s is w or (type(s) is int and s == 1) or s == w or s == 1
        for s, w in zip(sizes, wanted[len(wanted) - len(sizes) :])
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What index tensors choose. Indexed dimensions that are neighbours are replaced where they are, others move to the front."""

    meta: Meta
    shape: tuple[Size, ...]
    """Of the indices, broadcast."""
    taken: list[int]
    lead: list[int]
    """The dimensions before the indices', and behind."""
    tail: list[int]

    @staticmethod
    def of(m: Meta, indices: Sequence[FakeTensor | None]) -> _Chosen:
        shape = broadcast([i.meta.sizes for i in indices if i is not None])
        padded = [*indices, *([None] * (len(m.sizes) - len(indices)))]
        taken = [d for d, i in enumerate(padded) if i is not None]
        kept = [d for d, i in enumerate(padded) if i is None]
        adjacent = taken == list(range(taken[0], taken[-1] + 1))
        lead = [d for d in kept if d < taken[0]] if adjacent else []
        return _Chosen(m, shape, taken, lead, [d for d in kept if d not in lead])

    @property
    def sizes(self) -> tuple[Size, ...]:
        m = self.meta
        return (*(m.sizes[d] for d in self.lead), *self.shape, *(m.sizes[d] for d in self.tail))


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(x: FakeTensor, indices: Sequence[FakeTensor | None]) -> Meta:
    """Elements at broadcast index tensors; a mask would need its data."""
    m = x.meta
    given = [i for i in indices if i is not None]
    if any(i.meta.dtype in _MASKS for i in given):
        raise data_dependent("indexing with a mask")
    decline_if(not given or len(indices) > len(m.sizes) or any(i.meta.dtype not in _INTEGER for i in given))
    decline_if(any(i.meta.device != m.device and i.meta.device.type != "cpu" for i in given))
    chosen = _Chosen.of(m, indices)
    shape, lead, tail = chosen.shape, chosen.lead, chosen.tail
    if any(surely_empty(m.sizes[d]) for d in chosen.taken):
        decline_if(not _is_needed(lambda: any(s == 0 for s in shape)))
    base = (*(m.strides[d] for d in lead), *([0] * len(shape)), *(m.strides[d] for d in tail))
    operands = [(chosen.sizes, base)]
    for i in given:
        before, after = len(lead) + len(shape) - len(i.meta.sizes), len(tail)
        stretched = (*([1] * before), *i.meta.sizes, *([1] * after))
        reshaped = viewed_strides(i.meta.sizes, i.meta.strides, stretched)
        operands.append((stretched, reshaped or (*([0] * before), *i.meta.strides, *([0] * after))))
    return meta_of(m.dtype, chosen.sizes, iterator_strides(chosen.sizes, operands), m.device)


def _is_needed(holds: Callable[[], bool]) -> bool:
    """Does it hold? Eager refuses to run where not, which is noted if only data tells."""
    try:
        return holds()
    except DataDependent as asked:
        asked.needed = True
        raise


@rule("slice_backward", "select_backward", "diagonal_backward", "unfold_backward")
def view_backward(grad: FakeTensor, input_sizes: Sequence[Size], *rest: Any) -> Meta:
    """Zeros around the gradient of a view."""
    return dense(grad.meta, input_sizes)


def _register_scatter(name: str, view: Any) -> None:
    def function(x: FakeTensor, src: FakeTensor, *rest: Any, **others: Any) -> Meta:
        seen = RULES[view](x, *rest, **others)
        decline_if(not _as_told(lambda: same(src.meta.sizes, seen.meta.sizes)))
        return replaced(x)

    rule(name)(function)


_register_scatter("slice_scatter", torch.ops.aten.slice.Tensor)
_register_scatter("select_scatter", torch.ops.aten.select.int)
_register_scatter("diagonal_scatter", torch.ops.aten.diagonal.default)


def replaced(x: FakeTensor) -> Meta:
    """A copy of x, gaps and all, with a view of it replaced."""
    m = x.meta
    overlaps = any(stride == 0 and size != 1 for size, stride in zip(m.sizes, m.strides))
    return _like(x) if overlaps else meta_of(m.dtype, m.sizes, m.strides, m.device)


@rule("repeat")
def repeat(x: FakeTensor, repeats: Sequence[Size]) -> Meta:
    m = x.meta
    lead = len(repeats) - len(m.sizes)
    decline_if(lead < 0 or any(type(r) is int and r < 0 for r in repeats))
    return dense(m, [r * (m.sizes[i - lead] if i >= lead else 1) for i, r in enumerate(repeats)])


@rule("roll")
def roll(x: FakeTensor, shifts: Any, dims: Any = ()) -> Meta:
    """Elements moved around a dimension. Where there are none, eager copies the tensor as it lies."""
    dims = dims if isinstance(dims, (list, tuple)) else [dims]
    shifts = shifts if isinstance(shifts, (list, tuple)) else [shifts]
    decline_if(len(shifts) != (len(dims) or 1) or dims and not x.meta.sizes)
    for dim in dims:
        wrap(dim, len(x.meta.sizes))
    m = x.meta
    if dims and any(type(size) is int and size == 0 for size in m.sizes):
        return alike(m)
    if not dims or m.device.type != "cpu" or not suggests_channels_last(m.sizes, m.strides):
        return dense(m)
    strides = m.strides
    for shift, dim in zip(shifts, dims):
        strides = _rolled_strides(m.sizes, strides, shift, wrap(dim, len(m.sizes)))
    return meta_of(m.dtype, m.sizes, strides, m.device)


def _rolled_strides(sizes: tuple[Size, ...], strides: tuple[Size, ...], shift: Size, dim: int) -> tuple[Size, ...]:
    """Of two pieces that are joined the other way round, or of a contiguous copy where nothing moves."""
    start = (sizes[dim] - shift) % sizes[dim]
    if start == 0:
        return contiguous_strides(sizes)
    pieces = [((*sizes[:dim], part, *sizes[dim + 1 :]), strides) for part in (sizes[dim] - start, start)]
    return _joined_strides(sizes, pieces)


@rule("flip")
def flip(x: FakeTensor, dims: Sequence[int]) -> Meta:
    decline_if(len({wrap(d, len(x.meta.sizes)) for d in dims}) != len(dims))
    return _like(x)


@rule("tril", "triu")
def triangle(x: FakeTensor, diagonal: Any = 0) -> Meta:
    decline_if(len(x.meta.sizes) < 2)
    return dense(x.meta)


@rule("take")
def take(x: FakeTensor, index: FakeTensor) -> Meta:
    decline_if(index.meta.dtype is not torch.int64)
    m = index.meta
    return meta_of(x.meta.dtype, m.sizes, iterator_strides(m.sizes, [(m.sizes, m.strides)]), x.meta.device)


@rule("bucketize.Tensor")
def bucketize(x: FakeTensor, boundaries: FakeTensor, *, out_int32: bool = False, right: bool = False) -> Meta:
    decline_if(len(boundaries.meta.sizes) != 1)
    return dense(x.meta, dtype=torch.int32 if out_int32 else torch.int64)


@rule("searchsorted.Tensor")
def searchsorted(sorted_sequence: FakeTensor, x: FakeTensor, *, out_int32: bool = False, **others: Any) -> Meta:
    return dense(x.meta, dtype=torch.int32 if out_int32 else torch.int64)


@rule("channel_shuffle")
def channel_shuffle(x: FakeTensor, groups: Size) -> Meta:
    """On the processor in the memory format that it comes in."""
    m = x.meta
    decline_if(m.device.type != "cpu" or len(m.sizes) < 3 or groups <= 0 or m.sizes[1] % groups != 0)
    return in_format(m)


@rule("pixel_shuffle")
def pixel_shuffle(x: FakeTensor, factor: int) -> Meta:
    *lead, channels, height, width = x.meta.sizes
    decline_if(factor <= 0 or channels % (factor * factor) != 0)
    return _shuffled(x, (*lead, channels // (factor * factor), height * factor, width * factor))


@rule("pixel_unshuffle")
def pixel_unshuffle(x: FakeTensor, factor: int) -> Meta:
    *lead, channels, height, width = x.meta.sizes
    decline_if(factor <= 0 or height % factor != 0 or width % factor != 0)
    return _shuffled(x, (*lead, channels * factor * factor, height // factor, width // factor))


def _shuffled(x: FakeTensor, sizes: tuple[Size, ...]) -> Meta:
    m = x.meta
    last = len(sizes) == 4 and m.device.type == "cpu" and suggests_channels_last(m.sizes, m.strides)
    return meta_of(m.dtype, sizes, channels_last_strides(sizes) if last else None, m.device)
