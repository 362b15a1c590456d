"""Indices of tensors: those that are symbolic, or masks that only data tells."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.value import Era, Value
from stoker.fake import FakeTensor

MASKS = (torch.bool, torch.uint8)
INDICES = (torch.int64, torch.int32, torch.bool)
"""Elements of arrays that eager indexes by as by a tensor."""


def parts_by_data(m: Machine, key: Value, of: Any) -> TupleValue | None:
    """The index as a tuple, if an integer in it is symbolic, or a mask in it has no dimension, or if only data tells whether a number
    is inside."""
    parts = key.elements(m) if isinstance(key, TupleValue) else [key]
    untold = any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in of.shape)
    by_data = any(_is_symbolic(part) or untold and _is_number(part) for part in parts)
    return TupleValue(list(parts)) if by_data else None


def is_range_by_data(m: Machine, key: Value) -> bool:
    """Is it a view's index, with a range in it whose ends only data tells?"""
    parts = key.elements(m) if isinstance(key, TupleValue) else [key]
    ranges = [part for part in parts if isinstance(part, SliceValue)]
    if not all(isinstance(part, (Constant, SliceValue)) for part in parts):
        return False
    return any(isinstance(end, SymbolicValue) and end.untold for part in ranges for end in part.parts)


def _is_number(part: Value) -> bool:
    return isinstance(part, Constant) and type(part.value) is int


def _is_symbolic(part: Value) -> bool:
    if isinstance(part, SymbolicValue):
        return part.python_type() is int
    fake: Any = getattr(part, "fake", None)
    return isinstance(fake, torch.Tensor) and fake.dim() == 0 and fake.dtype in MASKS


def with_numbers(m: Machine, key: Value) -> Value:
    """The index with slices between numbers, where they were between tensors, and with numbers for tensors of one number, as eager
    reads them: the result is a view. An array is the tensor of its elements, and so is a list of numbers
    that vary."""
    tensor: Any = getattr(key, "tensor", None) if key.python_type() is numpy.ndarray else None
    if tensor is not None:
        return with_numbers(m, tensor) if tensor.fake.dtype in INDICES else key
    if _lists_numbers(m, key):
        return m.wrap.object(torch.tensor).call(m, [key], {})
    if isinstance(key, SliceValue) and any(isinstance(getattr(p, "fake", None), torch.Tensor) for p in key.parts):
        return SliceValue(*(_number(m, part) for part in key.parts))
    if _is_one_integer(key):
        return _number(m, key)
    if isinstance(key, TupleValue) and key.cls is tuple:
        parts = [with_numbers(m, part) for part in key.elements(m)]
        return TupleValue(parts) if any(a is not b for a, b in zip(parts, key.elements(m))) else key
    return key


def _lists_numbers(m: Machine, key: Value) -> bool:
    """Is it a list of integers, one of which varies?"""
    parts = key.elements(m) if type(key) is ListValue else []
    integers = all(part.python_type() is int for part in parts)
    return integers and any(isinstance(part, SymbolicValue) for part in parts)


def _is_one_integer(part: Value) -> bool:
    """In a subgraph it stays a tensor: what is mapped over has a dimension that is not seen there."""
    fake: Any = getattr(part, "fake", None)
    if Era.now or type(fake) is not FakeTensor or fake.dim() or fake.dtype in MASKS:
        return False
    return not fake.dtype.is_floating_point and not fake.dtype.is_complex


def _number(m: Machine, part: Value) -> Value:
    if isinstance(part, Constant) or not isinstance(getattr(part, "fake", None), torch.Tensor):
        return part
    return m.calls.builtin_method(part, "__index__", [], {})
