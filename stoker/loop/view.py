"""Tensors during lowering, and views of them as maps of indices.

A tensor is `Stored`, in a buffer with strides; or `Computed`, a function from an index to a value that nothing has stored yet.
A view of a stored tensor changes strides and offset; a view of a computed one composes functions. Neither copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import handler, ops
from stoker.loop.index import Dimension, coefficient, express, refine
from stoker.loop.layout import Sizes
from stoker.shape.expr import Expr, constant, symbol

Index = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in memory."""

    buffer: str
    dtype: torch.dtype
    device: torch.device
    sizes: Sizes
    strides: Sizes
    offset: Expr = field(default_factory=lambda: constant(0))

    def place(self, index: Index) -> Expr:
        """The element of the buffer that an index means."""
        return _place(self.offset, index, self.strides)

    def at(self, index: Index) -> Any:
        return ops.load(self.buffer, self.place(index), self.dtype)


@functools.lru_cache(maxsize=1 << 14)
def _place(offset: Expr, index: Index, strides: Sizes) -> Expr:
    """Remembered: each operator of each layer asks for the place of the same loops in memory of the same strides."""
    for i, stride in zip(index, strides):
        offset = offset + i * stride
    return offset


class NumberNeeded(Exception):
    """A lowering asked for the value of a number that is known only when the program runs."""

    reason = "it needs a number that is known only when the program runs"


def _unknown(*operands: Any) -> Any:
    raise NumberNeeded


@dataclass(frozen=True, slots=True)
class Scalar(Stored):
    """A Python number in memory, as a tensor without dimensions. Libraries are given the number."""

    __bool__ = __float__ = __int__ = __index__ = __neg__ = __abs__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = _unknown


@dataclass(frozen=True, eq=False)
class Computed:
    """A tensor that exists as the way to compute an element. `strides` are those it gets when it is stored."""

    dtype: torch.dtype
    device: torch.device
    sizes: Sizes
    strides: Sizes
    element: Callable[[Index], LoopValue]
    reads: frozenset[str] = frozenset()
    cost: int = 1
    origin: str = ""
    """The operator it stands for."""

    def at(self, index: Index) -> Any:
        current = handler()
        key = (id(self), index, current.condition)
        found = current.memo.get(key)
        if found is None:
            found = current.memo[key] = self.element(index)
            current.origins[self.origin] = None
        return found


Tensor = Stored | Computed


def reads_of(*tensors: Tensor) -> frozenset[str]:
    """The buffers that computing an element reads."""
    return frozenset().union(*({t.buffer} if isinstance(t, Stored) else t.reads for t in tensors))


def cost_of(*tensors: Tensor) -> int:
    """The cost of computing an element, in additions."""
    return sum(1 if isinstance(t, Stored) else t.cost for t in tensors)


def remap(tensor: Computed, sizes: Sizes, strides: Sizes, index_map: Callable[[Index], Index]) -> Computed:
    """A view of a computed tensor: the element at an index is the base's at another."""
    return replace(tensor, sizes=sizes, strides=strides, element=lambda index: tensor.at(index_map(index)))


def view(
    tensor: Tensor, sizes: Sizes, strides: Sizes, index_map: Callable[[Index], Index], start: Expr | int = 0
) -> Tensor:
    """A view by strides, from some element on, if it is stored; by another index if it is computed."""
    if isinstance(tensor, Stored):
        return replace(tensor, sizes=sizes, strides=strides, offset=tensor.offset + start)
    return remap(tensor, sizes, strides, index_map)


def permute(tensor: Tensor, order: Sequence[int]) -> Tensor:
    sizes = tuple(tensor.sizes[d] for d in order)
    strides = tuple(tensor.strides[d] for d in order)
    inverse = [list(order).index(d) for d in range(len(order))]
    return view(tensor, sizes, strides, lambda index: tuple(index[p] for p in inverse))


def expand(tensor: Tensor, sizes: Sizes) -> Tensor:
    """Stretch dimensions of one element, and add leading ones."""
    lead = len(sizes) - len(tensor.sizes)
    stretched = [d < lead or (tensor.sizes[d - lead].value == 1 and sizes[d].value != 1) for d in range(len(sizes))]
    zero = constant(0)
    strides = tuple(zero if s else tensor.strides[d - lead] for d, s in enumerate(stretched))

    def base(index: Index) -> Index:
        return tuple(zero if stretched[d] else index[d] for d in range(lead, len(sizes)))

    return view(tensor, sizes, strides, base)


def narrow(tensor: Tensor, dim: int, start: Expr, size: Expr, step: Expr) -> Tensor:
    """Elements start, start + step, ... of one dimension."""
    sizes = (*tensor.sizes[:dim], size, *tensor.sizes[dim + 1 :])
    strides = (*tensor.strides[:dim], tensor.strides[dim] * step, *tensor.strides[dim + 1 :])
    moved = start * tensor.strides[dim]
    return view(tensor, sizes, strides, lambda i: (*i[:dim], i[dim] * step + start, *i[dim + 1 :]), moved)


def select(tensor: Tensor, dim: int, at: Expr) -> Tensor:
    """One element of a dimension, which goes away."""
    sizes = tensor.sizes[:dim] + tensor.sizes[dim + 1 :]
    strides = tensor.strides[:dim] + tensor.strides[dim + 1 :]
    return view(tensor, sizes, strides, lambda i: (*i[:dim], at, *i[dim:]), at * tensor.strides[dim])


def unsqueeze(tensor: Tensor, dim: int, stride: Expr) -> Tensor:
    sizes = (*tensor.sizes[:dim], constant(1), *tensor.sizes[dim:])
    strides = (*tensor.strides[:dim], stride, *tensor.strides[dim:])
    return view(tensor, sizes, strides, lambda i: i[:dim] + i[dim + 1 :])


def squeeze(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Without these dimensions, each of which has one element."""
    kept = [d for d in range(len(tensor.sizes)) if d not in dims]
    sizes, strides = tuple(tensor.sizes[d] for d in kept), tuple(tensor.strides[d] for d in kept)
    zero, rank = constant(0), len(tensor.sizes)

    def base(index: Index) -> Index:
        given = iter(index)
        return tuple(zero if d in dims else next(given) for d in range(rank))

    return view(tensor, sizes, strides, base)


def split_map(old: Sizes, new: Sizes) -> Callable[[Index], Index] | None:
    """From indices of a reshaped tensor to those of its base, where no division is needed; otherwise None."""
    fine = refine(old, new)
    if fine is None or fine != tuple(s for s in new if s.value != 1):
        return None
    kept = [d for d, s in enumerate(new) if s.value != 1]
    names = [Dimension(symbol(f"split{d}"), s) for d, s in enumerate(fine)]
    shape = express(old, names)
    terms = [[(names.index(n), _factor(e, n.symbol)) for n in names if _factor(e, n.symbol)] for e in shape]

    def base(index: Index) -> Index:
        zero = constant(0)
        return tuple(sum((index[kept[p]] * f for p, f in parts), zero) for parts in terms)

    return base


def _factor(expr: Expr, name: Any) -> Any:
    found = coefficient(expr, name)
    return found if found is not None and found.value != 0 else None


def reshape_strides(old: Sizes, strides: Sizes, new: Sizes) -> Sizes | None:
    """Strides that show stored elements in another shape, or None if only a copy can."""
    dense = [(size, stride) for size, stride in zip(old, strides) if size.value != 1]
    groups: list[tuple[Expr, Expr]] = []
    for size, stride in dense:
        if groups and groups[-1][1] is stride * size:
            groups[-1] = (groups[-1][0] * size, stride)
        else:
            groups.append((size, stride))
    fine = refine([g[0] for g in groups], new)
    if fine is None or fine != tuple(s for s in new if s.value != 1):
        return None
    return _fine_strides(groups, new)


def _fine_strides(groups: list[tuple[Expr, Expr]], new: Sizes) -> Sizes | None:
    """Cut each group of memory into the new sizes, from the last."""
    result: list[Expr] = []
    position, done = len(groups) - 1, constant(1)
    for size in reversed(new):
        if size.value == 1:
            result.append(groups[position][1] * done if 0 <= position < len(groups) else constant(1))
            continue
        if done is groups[position][0]:
            position, done = position - 1, constant(1)
        result.append(groups[position][1] * done)
        done = done * size
    return tuple(reversed(result))
