"""The table of decompositions: operator to a function that computes the same by simpler operators.

A decomposition is a function of the operator's own arguments. It returns NotImplemented for arguments it leaves alone.
It runs while tracing, so what it calls is decomposed in turn; `stoker.decompose.prims` lists where that ends.

What must hold: the result has the operator's own type, sizes and strides. Type and sizes are the decomposition's duty; strides
are brought about here, for all of them (tests/unit/decompose/test_conform.py).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from stoker import log, torch_private
from stoker.decompose.types import is_refused
from stoker.fake import FakeTensor
from stoker.fake.meta import Meta, is_always_one, is_untold, memory_order, surely_same
from stoker.nest import leaves
from stoker.strict import strict

Decomposition = Callable[..., Any]

OURS: dict[Any, Decomposition] = {}
"""Filled by the modules of this package."""


def find(name: str) -> Any:
    """The operator "name.overload" of ATen, or None if this version of torch lacks it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def decompose(*names: str, only_real: bool = False) -> Callable[[Decomposition], Decomposition]:
    """Register for "name.overload"s of ATen; what this version of torch lacks is skipped. Complex ones may be left."""

    def register(function: Decomposition) -> Decomposition:
        for name in names:
            if (found := find(name)) is not None:
                OURS[found] = _conforming(found, function, only_real)
        return function

    return register


def decompose_all(formulas: Mapping[str, Decomposition]) -> None:
    """Register formulas, each for one or more names."""
    for names, function in formulas.items():
        decompose(*names.split())(function)


HALF = (torch.float16, torch.bfloat16)


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which eager computes."""
    return torch.float32 if dtype in HALF else dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor


def _conforming(operator: Any, function: Decomposition, only_real: bool = False) -> Decomposition:
    """The decomposition with results laid out as the operator's are."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_refused(operator, args) or (only_real and args[0].is_complex()):
            return NotImplemented
        made = function(*args, **kwargs)
        mode = next((a.memory.mode for a in leaves(args) if isinstance(a, FakeTensor)), None)
        if made is NotImplemented or mode is None:
            return made
        expected = mode.propagate(operator, args, kwargs)
        several = isinstance(made, (list, tuple))
        pairs = list(zip(made, expected, strict=True)) if several else [(made, expected)]
        if any(_differ(operator, m, e) for m, e in pairs):
            return NotImplemented
        results = [_laid_out(m, e) for m, e in pairs]
        return type(made)(results) if several else results[0]

    return call


def _differ(operator: Any, made: Any, expected: Any) -> bool:
    """Has the decomposition another type or rank than the operator? A defect of ours: the operator is left alone, with an event."""
    if not isinstance(made, FakeTensor):
        return False
    have, want = made.meta, expected.meta
    if have.dtype is want.dtype and len(have.sizes) == len(want.sizes):
        return False
    words = f"{operator} gives {want.dtype}{list(want.sizes)}; its decomposition gives {have.dtype}{list(have.sizes)}"
    if strict():
        raise AssertionError(words)
    log.record(log.Event("backend", f"{operator} is not decomposed", "?", words), level=logging.WARNING)
    return True


def _laid_out(made: Any, expected: Any) -> Any:
    if not isinstance(made, FakeTensor):
        return made
    have, want = made.meta, expected.meta
    empty = any(type(size) is int and size == 0 for size in want.sizes)
    if empty or any(map(is_untold, (*want.sizes, *want.strides))):  # in what order they lie cannot be asked
        return made
    if surely_same(have.strides, want.strides):
        return made
    if all(is_always_one(n) or surely_same([a], [b]) for n, a, b in zip(want.sizes, have.strides, want.strides)):
        return _restrided(made, want)
    order = memory_order(want.sizes, want.strides)
    return made.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def _restrided(made: FakeTensor, want: Meta) -> Any:
    """Other strides for dimensions of one element: a copy, which is a step of the loop that computes what is copied."""
    like = torch.empty_strided(want.sizes, want.strides, dtype=want.dtype, device=want.device)
    return torch.ops.aten.copy.default(like, made)


def of_one_type(function: Decomposition) -> Decomposition:
    """Leave tensors of several types alone, which the operator promotes before it computes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        several = len({a.dtype for a in args if isinstance(a, torch.Tensor)}) > 1
        return NotImplemented if several else function(*args, **kwargs)

    return call


def in_float(function: Decomposition) -> Decomposition:
    """Compute half-precision arguments in float32 and round once, as eager's kernels do."""

    @functools.wraps(function)
    def wide(*args: Any, **kwargs: Any) -> Any:
        dtype = next(a.dtype for a in args if isinstance(a, torch.Tensor))
        if dtype not in HALF:
            return function(*args, **kwargs)
        widened = [a.float() if isinstance(a, torch.Tensor) and a.dtype is dtype else a for a in args]
        result = function(*widened, **kwargs)
        if result is NotImplemented:
            return result
        if isinstance(result, tuple):
            return tuple(r if r is None else r.to(dtype) for r in result)
        return result.to(dtype)

    return wide


class Table(Mapping[Any, Decomposition]):
    """Our decompositions, then torch's for operators that are neither ours nor prims. Torch's are loaded when first
    needed."""

    def __init__(self, prims: frozenset[Any], without: frozenset[Any] = frozenset()) -> None:
        self._prims, self._without = prims, without

    def get(self, func: Any, default: Any = None) -> Any:
        if func in self._without:
            return default
        found = OURS.get(func)
        if found is None and func not in self._prims and _may_be_torchs(func):
            found = _torchs_for(func)
        return default if found is None else found

    def __getitem__(self, func: Any) -> Decomposition:
        found = self.get(func)
        if found is None:
            raise KeyError(func)
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(OURS)

    def __len__(self) -> int:
        return len(OURS)


_LEFT_ALONE = frozenset({"bucketize", "searchsorted", "take"})
"""Operators whose decomposition in torch reads the data of its arguments."""


@functools.cache
def _may_be_torchs(func: Any) -> bool:
    """Is torch's decomposition as good as the operator? Not where it would draw other random numbers."""
    if func.namespace != "aten" or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    schema = torch_private.schema_of(func)
    return not schema.is_mutable and schema.name.removeprefix("aten::") not in _LEFT_ALONE


@functools.cache
def _torchs() -> Mapping[Any, Decomposition]:
    return torch_private.long_tail_decompositions()


@functools.cache
def _torchs_for(func: Any) -> Decomposition | None:
    """Torch's own, whose results lie in memory as they happen to."""
    found = _torchs().get(func)
    return None if found is None else _conforming(func, found)
