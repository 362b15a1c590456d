"""A tensor's metadata as a value, and the arithmetic of sizes and strides.

In:  sizes and strides, each an int or a torch.SymInt.
Out: interned `Meta` records, and the strides that eager's allocation rules give.

What must hold: two equal metadata are one object (tests/unit/fake/test_propagate.py), so that a memo key hashes by
identity; and no function here decides anything about a symbol that the arithmetic does not need.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from stoker.shape.condition import Eq, Ge
from stoker.shape.env import DataDependent
from stoker.shape.expr import Symbol
from stoker.shape.prove import Proof

Answer = TypeVar("Answer")

Size = Any
"""An int or a torch.SymInt: both have the arithmetic, and comparing SymInts asks the shape environment."""


class Meta:
    """What is known of a tensor without its data. Made by `meta_of`, never directly; compare with `is`."""

    __slots__ = ("__weakref__", "device", "dtype", "offset", "reach_bytes", "sizes", "strides", "symbolic")

    def __init__(
        self,
        dtype: torch.dtype,
        sizes: tuple[Size, ...],
        strides: tuple[Size, ...],
        offset: Size,
        device: torch.device,
        symbolic: bool,
    ) -> None:
        self.dtype = dtype
        self.sizes = sizes
        self.strides = strides
        self.offset = offset
        self.device = device
        self.symbolic = symbolic
        self.reach_bytes: Size = _reach(sizes, strides, offset) * dtype.itemsize if symbolic else None
        """The bytes of memory a symbolic tensor spans. C++ would work it out again for each tensor."""

    def __repr__(self) -> str:
        return f"Meta({self.dtype}, {self.sizes}, {self.strides}, {self.offset}, {self.device})"


def _reach(sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> Size:
    """The number of elements from the start of memory to the last element."""
    return sum(((size - 1) * stride for size, stride in zip(sizes, strides)), offset + 1)


_INTERNED: dict[tuple[Any, ...], Meta] = {}


def _plain(values: Sequence[Size]) -> tuple[Any, ...]:
    """The same values with each SymInt replaced by its expression, which is hashable and unique."""
    return tuple(v.node.expr if isinstance(v, torch.SymInt) else v for v in values)


def meta_of(
    dtype: torch.dtype, sizes: Sequence[Size], strides: Sequence[Size] | None, device: torch.device, offset: Size = 0
) -> Meta:
    """The one `Meta` with this content. `strides=None` means contiguous."""
    sizes = tuple(sizes)
    strides = contiguous_strides(sizes) if strides is None else tuple(strides)
    key = (dtype, sizes, strides, offset, device)
    try:
        found = _INTERNED.get(key)
    except TypeError:  # a SymInt does not hash
        return _symbolic(dtype, sizes, strides, device, offset)
    if found is None:
        found = _INTERNED[key] = Meta(dtype, sizes, strides, offset, device, False)
    return found


def _symbolic(
    dtype: torch.dtype, sizes: tuple[Size, ...], strides: tuple[Size, ...], device: torch.device, offset: Size
) -> Meta:
    """The one `Meta` of its shape environment, and gone with that."""
    environment = next(v for v in (*sizes, *strides, offset) if isinstance(v, torch.SymInt)).node.shape_env
    key = (dtype, _plain(sizes), _plain(strides), *_plain((offset,)), device)
    found = environment.interned.get(key)
    if found is None:
        found = environment.interned[key] = Meta(dtype, sizes, strides, offset, device, True)
    return found


def _at_least_one(size: Size) -> Size:
    if type(size) is int:
        return size if size > 1 else 1
    return torch.sym_max(size, 1)


def contiguous_strides(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides: the last dimension is the fastest."""
    return strides_in_order(sizes, range(len(sizes)))


def strides_in_order(sizes: Sequence[Size], order: Sequence[int]) -> tuple[Size, ...]:
    """Dense strides where `order` lists dimensions from the slowest to the fastest."""
    strides: list[Size] = [1] * len(sizes)
    running: Size = 1
    for i in reversed(order):
        strides[i] = running
        running = running * _at_least_one(sizes[i])
    return tuple(strides)


CHANNELS_LAST_ORDER = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def channels_last_strides(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Strides of a batch-channels-space tensor whose channels are the fastest dimension."""
    return strides_in_order(sizes, CHANNELS_LAST_ORDER[len(sizes)])


def product(sizes: Sequence[Size]) -> Size:
    """The number of elements."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def is_untold(size: Size) -> bool:
    """Does only data tell a size?"""
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


def _surely_many(size: Size) -> bool:
    """Has a dimension more than one element, without asking?"""
    if not isinstance(size, torch.SymInt):
        return bool(size > 1)
    return size.node.shape_env.prove(Ge(size.node.expr, 2)) is Proof.YES


def surely_empty(size: Size) -> bool:
    """Has a dimension no element? One whose size only data tells counts as having some."""
    return not is_untold(size) and bool(size == 0)


def of_layout(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A question about how elements lie in memory. Where only data would tell, the answer is one for large sizes: a tensor that
    lies otherwise than eager's has the same elements."""

    @functools.wraps(function)
    def asked(*args: Any) -> Answer:
        try:
            return function(*args)
        except DataDependent as question:
            if question.env is None:
                raise
            with question.env.guessing():
                return function(*args)

    return asked


def is_empty(sizes: Sequence[Size]) -> bool:
    """Has some dimension no element? Symbols are sizes of at least one, or ask their environment."""
    return any(size == 0 for size in sizes)


def has_one(size: Size) -> bool:
    """Has a dimension one element?"""
    return bool(size == 1)


def is_always_one(size: Size) -> bool:
    """Has a dimension one element in every call of a version? One that may have it and may have more is taken to have more, without
    a guard: for how fresh results lie, where the strides of a dimension of one element tell nothing."""
    if isinstance(size, torch.SymInt) and isinstance(size.node.expr, Symbol) and size.node.has_hint():
        return size.node.shape_env.prove(Eq(size.node.expr, 1)) is Proof.YES
    return has_one(size)


IsOne = Callable[[Size], bool]


def _matches(sizes: Sequence[Size], strides: Sequence[Size], order: Sequence[int], is_one: IsOne) -> bool:
    expected: Size = 1
    for i in reversed(order):
        if not surely_same([strides[i]], [expected]) and not is_one(sizes[i]) and strides[i] != expected:
            return False
        expected = expected * sizes[i]
    return True


@of_layout
def is_contiguous(sizes: Sequence[Size], strides: Sequence[Size], is_one: IsOne = has_one) -> bool:
    """Are these row-major strides, leaving dimensions of one element free?"""
    return is_empty(sizes) or _matches(sizes, strides, range(len(sizes)), is_one)


@of_layout
def is_channels_last(sizes: Sequence[Size], strides: Sequence[Size], is_one: IsOne = has_one) -> bool:
    """Is this a dense image or volume with its channels fastest?"""
    return len(sizes) in (4, 5) and _matches(sizes, strides, CHANNELS_LAST_ORDER[len(sizes)], is_one)


@of_layout
def is_dense(sizes: Sequence[Size], strides: Sequence[Size], is_one: IsOne = has_one) -> bool:
    """Do the elements fill a block of memory, each once, in some order of dimensions?"""
    if is_contiguous(sizes, strides, is_one) or is_channels_last(sizes, strides, is_one):
        return True
    present = [i for i, size in enumerate(sizes) if not is_one(size)]
    return _matches(sizes, strides, sorted(present, key=_SortKey.of(strides), reverse=True), is_one)


class _SortKey:
    """Orders dimensions by stride with `<` alone, so that a symbolic stride is asked, not converted."""

    __slots__ = ("value",)

    def __init__(self, value: Size) -> None:
        self.value = value

    def __lt__(self, other: _SortKey) -> bool:
        return bool(self.value < other.value)

    @staticmethod
    def of(strides: Sequence[Size]) -> Any:
        return lambda i: _SortKey(strides[i])


@of_layout
def suggests_channels_last(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Do the strides alone say channels-last, as eager reads them when it chooses a memory format?"""
    rank = len(sizes)
    if rank not in (4, 5) or strides[1] == 0:
        return False
    least: Size = 0
    for i in (1, *range(rank - 1, 1, -1), 0):
        if sizes[i] == 0 or strides[i] < least:
            return False
        if i == 0 and least == strides[1]:
            return False
        least = strides[i]
        if sizes[i] > 1:
            least = least * sizes[i]
    return True


def formatted_strides(sizes: Sequence[Size], channels_last: bool) -> tuple[Size, ...]:
    """Contiguous, or channels-last when asked for and possible."""
    return channels_last_strides(sizes) if channels_last and len(sizes) in (4, 5) else contiguous_strides(sizes)


Operand = tuple[tuple[Size, ...], tuple[Size, ...]]


@of_layout
def iterator_strides(shape: tuple[Size, ...], operands: Sequence[Operand]) -> tuple[Size, ...]:
    """The strides eager's element-wise iterator gives a fresh output, from its inputs' (sizes, strides).

    Equal layouts are kept. Otherwise dimensions are sorted by the inputs' strides, the first input counting most, and
    the output is dense in that order.
    """
    rank = len(shape)
    if rank == 0:
        return ()
    if all(len(sizes) == rank and not any(map(_is_stretched, sizes, shape)) for sizes, _ in operands):
        if all(is_contiguous(*o, is_always_one) for o in operands):
            return contiguous_strides(shape)
        if all(is_channels_last(*o, is_always_one) for o in operands):
            return channels_last_strides(shape)
        first = operands[0][1]
        if all(same(o[1], first) for o in operands) and is_dense(*operands[0], is_always_one):
            return first
    return _strides_in_their_order(shape, [_broadcast_strides(shape, *o) for o in operands])


def _strides_in_their_order(shape: tuple[Size, ...], aligned: list[list[Size]]) -> tuple[Size, ...]:
    """Dense, with dimensions in the order of given strides."""
    order = _sorted_dimensions(shape, aligned)
    if order == tuple(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    strides: list[Size] = [0] * len(shape)
    running: Size = 1
    for i in order:
        strides[i] = running
        running = running * shape[i]
    return tuple(strides)


def same(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Are two size lists equal, element by element?"""
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b))


def surely_same(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Are two size lists equal without asking, element by element?"""
    return len(a) == len(b) and _plain(a) == _plain(b)


def _broadcast_strides(shape: tuple[Size, ...], sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> list[Size]:
    lead = len(shape) - len(sizes)
    padded: list[Size] = [0] * lead
    for i, (size, stride) in enumerate(zip(sizes, strides)):
        padded.append(0 if _is_stretched(size, shape[lead + i]) else stride)
    return padded


def _is_stretched(size: Size, whole: Size) -> bool:
    """Is a dimension of one element to have more? What broadcasts is either that, or has as many."""
    return not is_always_one(whole) if type(size) is int and size == 1 else not same([size], [whole])


@of_layout
def memory_order(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> tuple[int, ...]:
    """Dimensions from the slowest in memory to the fastest."""
    return _sorted_dimensions(sizes, [list(strides)])[::-1]


def _sorted_dimensions(shape: tuple[Size, ...], aligned: list[list[Size]]) -> tuple[int, ...]:
    """Dimensions from the fastest to the slowest; an insertion sort, because the order is only partial."""
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        moving = i
        for before in range(i - 1, -1, -1):
            verdict = _compare(shape, aligned, order[before], order[moving])
            if verdict > 0:
                order[before], order[moving] = order[moving], order[before]
                moving = before
            elif verdict < 0:
                break
    return tuple(order)


def _compare(shape: tuple[Size, ...], aligned: list[list[Size]], a: int, b: int) -> int:
    for strides in aligned:
        x, y = strides[a], strides[b]
        if x == 0 or y == 0:
            continue
        if x is not y and x != y:
            return -1 if x < y else 1
        if shape[a] > shape[b]:
            return 1
    return 0


@of_layout
def like_strides(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> tuple[Size, ...]:
    """What `empty_like(x)` keeps of x's strides: all when dense, else their order. Without dimensions of one element or none, that is
    the same, and whether it is dense is not asked."""
    if any(isinstance(number, torch.SymInt) for number in (*sizes, *strides)) and all(map(_surely_many, sizes)):
        return _strides_in_their_order(sizes, [list(strides)])
    if is_dense(sizes, strides, is_always_one):
        return strides
    return iterator_strides(sizes, [(sizes, strides)])


def dense(like: Meta, sizes: Sequence[Size] | None = None, dtype: torch.dtype | None = None) -> Meta:
    """A fresh contiguous tensor on the device of another, and with its sizes and type unless others are given."""
    return meta_of(dtype or like.dtype, like.sizes if sizes is None else sizes, None, like.device)


def alike(like: Meta, dtype: torch.dtype | None = None) -> Meta:
    """A fresh tensor as `empty_like` makes it of another."""
    return meta_of(dtype or like.dtype, like.sizes, like_strides(like.sizes, like.strides), like.device)


def in_format(like: Meta, sizes: Sequence[Size] | None = None, dtype: torch.dtype | None = None) -> Meta:
    """A fresh tensor in the memory format of another."""
    sizes = like.sizes if sizes is None else sizes
    strides = formatted_strides(sizes, suggests_channels_last(like.sizes, like.strides))
    return meta_of(dtype or like.dtype, sizes, strides, like.device)
