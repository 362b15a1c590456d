"""Operators whose results only data determines: sizes and numbers without hints, new at each call.

A size is a symbol of which no more is known than that it is not negative, and that it is the same wherever it is asked of memory
that holds the same. Where there is no shape environment to make symbols in, and for a truth value, the operator is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Size, is_dense, is_untold, meta_of, product, surely_empty
from stoker.fake.rule import IMPURE, rule
from stoker.fake.rules.index import replaced
from stoker.fake.rules.view import wrap
from stoker.fake.tensor import FakeStorage, FakeTensor, data_dependent, make_fake
from stoker.shape.env import LARGEST_SIZE
from stoker.shape.symnode import size_of, symfloat, symint

_MASKS = (torch.bool, torch.uint8)
_CHOSEN, _DIFFERENT = "elements that are not zero", "different elements"


def size_told_by(
    mode: Any, func: Any, what: str, x: FakeTensor, *more: Any, minimum: int = 0, maximum: int = LARGEST_SIZE
) -> Any:
    """The size that only running the program tells: `what` is counted in the elements of x."""
    if mode.shape_env is None:
        raise data_dependent(str(func))
    mode.told_by_data += 1
    key = (mode.scope, what, *_elements(x), *more)
    return symint(mode.shape_env, mode.shape_env.derived(key, minimum=minimum, maximum=maximum))


def _elements(x: FakeTensor) -> tuple[Any, ...]:
    """What tells the elements of a tensor, in whichever order, from those of others."""
    m = x.meta
    if m.symbolic or not is_dense(m.sizes, m.strides):
        return x.memory.content, m
    return x.memory.content, m.dtype, m.offset, product(m.sizes)


def _fresh(
    mode: Any, x: FakeTensor, sizes: Sequence[Size], dtype: torch.dtype | None = None, strides: Any = None
) -> Any:
    return make_fake(meta_of(dtype or x.meta.dtype, sizes, strides, x.meta.device), FakeStorage(mode))


@rule("_local_scalar_dense", table=IMPURE)
def local_scalar(mode: Any, func: Any, x: torch.Tensor) -> Any:
    """item(): of content that is remembered, or a number without a hint."""
    if not isinstance(x, FakeTensor):
        return x.item()
    known = x.memory.constant
    if known is not None and known.dtype is x.meta.dtype:
        return known.item()
    if x.memory.content in mode.batches and (x.meta.dtype, x.meta.offset) == (torch.int64, 0):
        return mode.batches[x.memory.content]  # at the first step all sequences are there
    if mode.shape_env is None or x.meta.dtype is torch.bool or x.meta.dtype.is_complex:
        raise data_dependent("Tensor.item")
    if x.meta.dtype.is_floating_point:
        return symfloat(mode.shape_env, mode.shape_env.new_float(None))
    info = torch.iinfo(x.meta.dtype)
    return size_told_by(mode, func, "the number", x, minimum=info.min, maximum=info.max)


@rule("nonzero", table=IMPURE)
def nonzero(mode: Any, func: Any, x: FakeTensor) -> Any:
    """The places of elements, one coordinate after the other in memory."""
    x = mode.as_fake(x)
    count = size_told_by(mode, func, _CHOSEN, x)
    return _fresh(mode, x, (count, len(x.meta.sizes)), torch.int64, (1, count))


@rule("masked_select", table=IMPURE)
def masked_select(mode: Any, func: Any, x: FakeTensor, mask: FakeTensor) -> Any:
    """The chosen elements in a row."""
    x, mask = mode.as_fake(x), mode.as_fake(mask)
    sizes, shape = (tuple(map(size_of, t.meta.sizes)) for t in (x, mask))
    stretched = () if sizes == shape else (sizes, shape)
    return _fresh(mode, x, (size_told_by(mode, func, _CHOSEN, mask, *stretched),))


@rule("_unique2", "unique_consecutive", table=IMPURE)
def unique(mode: Any, func: Any, x: FakeTensor, *given: Any, **named: Any) -> Any:
    """Different elements, where each is among them, how often it occurs; what was not asked for is empty."""
    x = mode.as_fake(x)
    first = func is torch.ops.aten.unique_consecutive.default
    names = ("return_inverse", "return_counts", "dim") if first else ("sorted", "return_inverse", "return_counts")
    asked = dict(zip(names, given)) | named
    if asked.get("dim") is not None:
        return unique_rows(mode, func, x, asked["dim"], asked)
    order = (x.meta,) if first else ()
    count = size_told_by(mode, func, "different in a row" if first else _DIFFERENT, x, *order)
    inverse = x.meta.sizes if asked.get("return_inverse") else (0,)
    counts = (count,) if asked.get("return_counts") else (0,)
    return (_fresh(mode, x, (count,)), _fresh(mode, x, inverse, torch.int64), _fresh(mode, x, counts, torch.int64))


@rule("_unique", table=IMPURE)
def unique_and_inverse(mode: Any, func: Any, x: FakeTensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    """The same, without how often."""
    x = mode.as_fake(x)
    inverse = x.meta.sizes if return_inverse else (0,)
    count = size_told_by(mode, func, _DIFFERENT, x)
    return _fresh(mode, x, (count,)), _fresh(mode, x, inverse, torch.int64)


@rule("_ctc_loss.Tensor", table=IMPURE)
def ctc_loss(
    mode: Any,
    func: Any,
    log_probs: FakeTensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *more: Any,
    **named: Any,
) -> Any:
    """A loss for each sequence, and probabilities of prefixes, as many as the longest target asks for."""
    x = mode.as_fake(log_probs)
    if len(x.meta.sizes) != 3:
        raise data_dependent(str(func))
    time, batch, _ = x.meta.sizes
    longest = size_told_by(mode, func, "the longest prefix", mode.as_fake(target_lengths), minimum=1)
    return _fresh(mode, x, (batch,)), _fresh(mode, x, (batch, time, longest))


@rule("unique_dim", "unique_dim_consecutive", table=IMPURE)
def unique_dim(mode: Any, func: Any, x: FakeTensor, dim: int, *given: Any, **named: Any) -> Any:
    sorts = func is torch.ops.aten.unique_dim.default
    names = ("sorted", "return_inverse", "return_counts") if sorts else ("return_inverse", "return_counts")
    asked = dict(zip(names, given)) | named
    if sorts:
        asked |= {"return_inverse": True, "return_counts": True}
    return unique_rows(mode, func, mode.as_fake(x), dim, asked)


def unique_rows(mode: Any, func: Any, x: FakeTensor, dim: int, asked: dict[str, Any]) -> Any:
    """The same, for the parts along one dimension."""
    sizes = x.meta.sizes
    if not sizes or any(is_untold(size) or size == 0 for size in sizes):
        raise data_dependent(str(func))
    dim = wrap(dim, len(sizes))
    most = sizes[dim] if isinstance(sizes[dim], int) else LARGEST_SIZE
    count = size_told_by(mode, func, str(func), x, x.meta, dim, minimum=1, maximum=most)
    lengths = [sizes[dim] if asked.get("return_inverse") else 0, count if asked.get("return_counts") else 0]
    return (
        _fresh(mode, x, (*sizes[:dim], count, *sizes[dim + 1 :])),
        *(_fresh(mode, x, (length,), torch.int64) for length in lengths),
    )


@rule("slice.Tensor", table=IMPURE)
def slice_by_data(
    mode: Any, func: Any, x: FakeTensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """A range between bounds of unknown sign: how long it is, and where it begins, are numbers of their own, the same for the
    same bounds. Other ranges are operators as others."""
    if not any(_is_of_unknown_sign(bound) for bound in (start, end)) or type(step) is not int or step <= 0:
        return NotImplemented
    x = mode.as_fake(x)
    m, env = x.meta, mode.shape_env
    dim = wrap(dim, len(m.sizes))
    size = m.sizes[dim]
    most = {"maximum": size} if type(size) is int else {}
    key = (func, *(size_of(v) if isinstance(v, (int, torch.SymInt)) else v for v in (size, start, end, step)))
    length, low = (symint(env, env.derived((what, *key), **most)) for what in ("length", "low"))
    sizes = (*m.sizes[:dim], length, *m.sizes[dim + 1 :])
    strides = (*m.strides[:dim], m.strides[dim] * step, *m.strides[dim + 1 :])
    return make_fake(meta_of(m.dtype, sizes, strides, m.device, m.offset + low * m.strides[dim]), x.memory)


@rule("slice_scatter", table=IMPURE)
def slice_scatter_by_data(
    mode: Any,
    func: Any,
    x: FakeTensor,
    src: FakeTensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Any:
    """A tensor with such a range replaced, which is as long as what replaces it, or the program raises."""
    if not any(_is_of_unknown_sign(bound) for bound in (start, end)):
        return NotImplemented
    x = mode.as_fake(x)
    return make_fake(replaced(x), FakeStorage(mode))


def _is_of_unknown_sign(bound: Any) -> bool:
    return is_untold(bound) and (bound < 0).node.is_unknown()  # type: ignore[attr-defined]  # a symbolic condition


@rule("bincount", table=IMPURE)
def bincount(mode: Any, func: Any, x: FakeTensor, weights: FakeTensor | None = None, minlength: int = 0) -> Any:
    """How often each number occurs."""
    counted = torch.int64
    if weights is not None:
        counted = torch.float32 if weights.dtype is torch.float32 else torch.float64
    least = minlength if type(minlength) is int else 0
    x = mode.as_fake(x)
    more = size_of(minlength) if isinstance(minlength, torch.SymInt) else minlength
    return _fresh(mode, x, (size_told_by(mode, func, "the largest", x, more, minimum=least),), counted)


@rule("repeat_interleave.Tensor", table=IMPURE)
def repeat_interleave(mode: Any, func: Any, repeats: FakeTensor, *, output_size: Size | None = None) -> Any:
    """Its length is a sum of data, unless given."""
    repeats = mode.as_fake(repeats)
    size = size_told_by(mode, func, "the sum", repeats) if output_size is None else output_size
    return _fresh(mode, repeats, (size,))


@rule("index.Tensor", table=IMPURE)
def index_by_mask(mode: Any, func: Any, x: FakeTensor, indices: Sequence[FakeTensor | None]) -> Any:
    """A mask stands for the places it has: an index for each of its dimensions. Without masks it is an operator as others."""
    if not any(i is not None and i.dtype in _MASKS for i in indices):
        return NotImplemented
    places: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in _MASKS:
            places.append(index)
            continue
        mask = mode.as_fake(index)
        taken = x.shape[len(places) : len(places) + mask.dim()]
        if len(taken) != mask.dim() or any(bool(a != b) for a, b in zip(mask.shape, taken)):
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} does not match the shape of the indexed tensor {list(x.shape)}"
            )
        if not mask.dim():
            raise data_dependent("indexing with a mask")
        most = 0 if any(map(surely_empty, mask.shape)) else LARGEST_SIZE
        count = size_told_by(mode, func, _CHOSEN, mask, maximum=most)
        places += [_fresh(mode, mask, (count,), torch.int64) for _ in mask.shape]
    return mode.propagate(func, (x, places), {})


@rule("equal", "allclose", table=IMPURE)
def refuse(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    raise data_dependent(str(func))
