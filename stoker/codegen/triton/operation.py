"""Loop operations as Triton expressions: one table, completed by tests/unit/codegen/test_triton.py."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from stoker.loop.target import LOOP_DTYPES
from stoker.loop.text import short

_FLOAT8 = {torch.float8_e4m3fn: "float8_e4m3", torch.float8_e5m2: "float8_e5m2"}
"""How the library's functions name them."""

TYPES: dict[torch.dtype, str] = {
    **{dtype: f"tl.{short(dtype)}" for dtype in LOOP_DTYPES},
    torch.bool: "tl.int1",
    **dict.fromkeys(_FLOAT8, "tl.uint8"),
}
"""Numbers of 8 bits with a point are their bits: nothing is computed with them but conversions."""

POINTERS: dict[torch.dtype, str] = {
    torch.bool: "*i1",
    torch.uint8: "*u8",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.float8_e4m3fn: "*u8",
    torch.float8_e5m2: "*u8",
}
"""How Triton's signatures name memory of a type."""

BITS: dict[int, str] = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
"""How they name the bits of a number, by its bytes."""

_DEVICE_FUNCTIONS = """
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc rsqrt
"""
"""Functions of one number that the device's mathematics library has, under our names."""

OPERATIONS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "divide({0}, {1})",
    "floor_divide": "divide_down({0}, {1})",
    "truncate_divide": "divide_toward_zero({0}, {1})",
    "remainder": "remainder_by_floor({0}, {1})",
    "fmod": "remainder_by_truncation({0}, {1})",
    "neg": "negated({0})",
    "abs": "tl.abs({0})",
    "sign": "sign({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": "libdevice.rint({0})",
    "trunc": "truncated({0})",
    "sqrt": "square_root({0})",
    "reciprocal": "reciprocal({0})",
    "minimum": "smaller({0}, {1})",
    "maximum": "larger({0}, {1})",
    "relu": "tl.where({0} < 0, 0, {0})",
    "copysign": "libdevice.copysign({0}, {1})",
    "left_shift": "shift_left({0}, {1})",
    "right_shift": "shift_right({0}, {1})",
    "sigmoid": "logistic({0})",
    "pow": "libdevice.pow({0}, {1})",
    "atan2": "libdevice.atan2({0}, {1})",
    "lgamma": "log_gamma({0})",
    "decay": "decay({0})",
    "normal_tail": "normal_tail({0})",
    "quick_sin": "libdevice.fast_sinf({0})",
    "fma": "tl.fma({0}, {1}, {2})",
    "plus_at": "plus_at({0}, {1})",
    "philox": "philox_word({0}, {1}, {2}, {3}, {4})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "isnan": "{0} != {0}",
    "isinf": "tl.abs({0}) == float('inf')",
    "bitwise_not": "~{0}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "where": "tl.where({0}, {1}, {2})",
} | {name: f"libdevice.{name}({{0}})" for name in _DEVICE_FUNCTIONS.split()}

_FOR_BOOL: dict[str, str] = {"bitwise_not": "{0} == 0", "abs": "{0}", "minimum": "{0} & {1}", "maximum": "{0} | {1}"}
_HALF = (torch.float16, torch.bfloat16)
_NARROW = (torch.uint8, torch.int8, torch.int16)


def operation(name: str, dtype: torch.dtype, argument_dtype: torch.dtype, arguments: list[str]) -> str:
    """The expression of an elementwise operation. Whole numbers of few bits are cut to their type."""
    form = _FOR_BOOL.get(name) if argument_dtype is torch.bool else None
    words = (form or OPERATIONS[name]).format(*arguments)
    if dtype in _NARROW or (dtype is torch.float64 and name == "relu"):
        return f"({words}).to({TYPES[dtype]})"
    return words


def literal(value: Any, dtype: torch.dtype, shape: list[int]) -> str:
    """A constant of a type, in a tile of one element."""
    if dtype is torch.bool:
        words = "1" if value else "0"
    elif dtype in _FLOAT8:
        words = str(int(torch.tensor([float(value)]).to(dtype).view(torch.uint8)))
    elif not dtype.is_floating_point:
        words = str(int(value) % 256 if dtype is torch.uint8 else int(value))
    elif math.isnan(value := _rounded(value, dtype)):
        words = "float('nan')"
    elif math.isinf(value):
        words = f"float('{'-' if value < 0 else ''}inf')"
    else:
        words = repr(value)
    if dtype in _HALF:  # Triton reads its own constants of half precision from six digits after the point
        return f"tl.full({shape}, {words}, tl.float32).to({TYPES[dtype]})"
    return f"tl.full({shape}, {words}, {TYPES[dtype]})"


def _rounded(value: Any, dtype: torch.dtype) -> float:
    """A number as it is in a type of half precision: exactly that in a wider one."""
    return float(torch.tensor(float(value), dtype=dtype)) if dtype in _HALF else float(value)


def given(name: str, dtype: torch.dtype, shape: list[int]) -> str:
    """A number whose bits are a parameter, in a tile of one element."""
    bits = f"(tl.zeros({shape}, tl.int{8 * dtype.itemsize}) + {name}.to(tl.int{8 * dtype.itemsize}))"
    if dtype is torch.bool:
        return f"{bits} != 0"
    return f"{bits}.to({TYPES[dtype]}, bitcast=True)"


@functools.cache
def _largest() -> int:
    """The bits that eager makes of a number beyond float8_e4m3fn: its largest number, or none, by the version of torch."""
    return int(torch.tensor([1e6]).to(torch.float8_e4m3fn).view(torch.uint8))


def converted(words: str, source: torch.dtype, dtype: torch.dtype) -> str:
    """A value in another type."""
    if dtype in _FLOAT8:
        return f"to_{_FLOAT8[dtype]}({words}{f', {_largest()}' if dtype is torch.float8_e4m3fn else ''})"
    if source in _FLOAT8:
        return f"from_{_FLOAT8[source]}({words})"
    if dtype is torch.bool:
        return f"({words}) != 0"
    if dtype is torch.uint8 and source.is_floating_point:
        return f"({words}).to(tl.int64).to(tl.uint8)"  # a negative number wraps around, as it does in eager
    if dtype in (torch.float16, torch.bfloat16) and not source.is_floating_point:
        return f"({words}).to(tl.float32).to({TYPES[dtype]})"  # eager's numbers of half precision are made of float32
    return f"({words}).to({TYPES[dtype]})"


def interleaved(tiles: Sequence[str]) -> str:
    """An element of each, then the next of each: tiles side by side along new axes at the end, of two each."""
    if len(tiles) == 1:
        return tiles[0]
    return f"tl.join({interleaved(tiles[::2])}, {interleaved(tiles[1::2])})"
