"""Type promotion, broadcasting and the device of a result: what element-wise operators share.

What must hold: equal to eager for tensors, 0-d tensors and Python numbers (tests/unit/fake/test_propagate.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from stoker.fake.meta import Size, surely_same
from stoker.fake.rule import Decline
from stoker.fake.tensor import FakeTensor

_COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
    torch.bfloat16: torch.complex64,
}
REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex type with parts of this type."""
    return _COMPLEX_OF.get(dtype, torch.complex64)


def number_dtype(value: Any) -> torch.dtype:
    """The type a Python number has when it meets tensors."""
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    if isinstance(value, complex):
        return complex_of(torch.get_default_dtype())
    return torch.get_default_dtype()


def _merge(current: torch.dtype | None, dtype: torch.dtype) -> torch.dtype:
    return dtype if current is None or current is dtype else torch.promote_types(current, dtype)


def _outrank(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """A lower category changes the type only when it is of a higher kind (bool < int < float < complex)."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return complex_of(higher) if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def result_dtype(operands: Iterable[Any]) -> torch.dtype:
    """The common type of tensors, 0-d tensors and numbers, in that order of weight."""
    full: torch.dtype | None = None
    zero: torch.dtype | None = None
    number: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, FakeTensor):
            if operand.meta.sizes:
                full = _merge(full, operand.meta.dtype)
            else:
                zero = _merge(zero, operand.meta.dtype)
        elif operand is not None:
            number = _merge(number, number_dtype(operand))
    result = _outrank(full, _outrank(zero, number))
    if result is None:
        raise Decline
    return result


def float_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of a result that cannot be integral."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The common shape; sizes of one stretch."""
    first = shapes[0]
    if all(shape is first or surely_same(shape, first) for shape in shapes[1:]):
        return tuple(first)
    rank = max(len(shape) for shape in shapes)
    result: list[Size] = [1] * rank
    for shape in shapes:
        lead = rank - len(shape)
        for i, size in enumerate(shape, lead):
            current = result[i]
            if size is current or (type(size) is int and size == 1):
                continue
            if type(current) is int and current == 1:
                result[i] = size
            elif size != current:
                if current == 1:
                    result[i] = size
                elif size != 1:
                    raise Decline
    return tuple(result)


def common_device(tensors: Sequence[FakeTensor]) -> torch.device:
    """The one device of all tensors; a 0-d CPU tensor may join any."""
    device = tensors[0].meta.device
    if all(t.meta.device == device for t in tensors):
        return device
    placed = [t.meta.device for t in tensors if t.meta.sizes or t.meta.device.type != "cpu"]
    if any(d != placed[0] for d in placed):
        raise Decline
    return placed[0]
