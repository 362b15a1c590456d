"""Loop operations as C++ expressions: one table, completed by tests/unit/codegen/test_operation.py."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import torch

from stoker.loop.op import ELEMENTWISE

TYPES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}

_OPERATIONS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "round": "nearbyint_of({0})",
    "rsqrt": "{t}(1) / sqrt_of({0})",
    "reciprocal": "{t}(1) / {0}",
    "relu": "{0} < {t}(0) ? {t}(0) : {0}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "isnan": "{0} != {0}",
    "isinf": "abs_of({0}) == std::numeric_limits<decltype({0} + 0)>::infinity()",
    "bitwise_not": "~{0}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "where": "choose({0}, {1}, {2})",
    "plus_at": "{0} + ({1} ? *reinterpret_cast<const int64_t*>({1}) : 0)",
}
_BY_NAME = "floor_divide truncate_divide minimum maximum left_shift right_shift"
"""Functions of the headers that have the operation's own name."""
_OF = """
remainder fmod abs sign floor ceil trunc sqrt copysign pow atan2 fma philox exp exp2 expm1 log log2 log10 log1p sin cos
tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid decay normal_tail quick_sin
"""
"""Functions that are named `abs_of`."""


def _call(function: str, name: str) -> str:
    return f"{function}({', '.join(f'{{{n}}}' for n in range(ELEMENTWISE[name].arity))})"


OPERATIONS: dict[str, str] = _OPERATIONS | {name: _call(name, name) for name in _BY_NAME.split()}
OPERATIONS |= {name: _call(f"{name}_of", name) for name in _OF.split()}

_FOR_TYPE: dict[tuple[str, torch.dtype], str] = {
    ("bitwise_not", torch.bool): "!{0}",
    ("abs", torch.bool): "{0}",
    ("abs", torch.uint8): "{0}",
    ("abs", torch.int8): "{0} < 0 ? -{0} : {0}",
    ("abs", torch.int16): "{0} < 0 ? -{0} : {0}",
}


def operation(name: str, dtype: torch.dtype, argument_dtype: torch.dtype, arguments: list[str]) -> str:
    """The expression of an elementwise operation, converted to its type."""
    form = _FOR_TYPE.get((name, argument_dtype)) or OPERATIONS[name]
    return form.format(*arguments, t=TYPES[dtype])


def literal(value: Any, dtype: torch.dtype, number_text: Callable[[str], str] = str) -> str:
    """A constant, exactly. How its digits are written may be given."""
    if dtype is torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        if int(value) == -(2**63):
            return "INT64_MIN"
        return f"{TYPES[dtype]}({number_text(f'{int(value)}LL')})"
    number = float(value)
    kind = "double" if dtype is torch.float64 else "float"
    if math.isnan(number):
        return _narrowed(f"std::numeric_limits<{kind}>::quiet_NaN()", dtype)
    if kind == "float" and not math.isinf(number):
        number = _as_float(number)
    if math.isinf(number):
        sign = "-" if number < 0 else ""
        return _narrowed(f"{sign}std::numeric_limits<{kind}>::infinity()", dtype)
    return _narrowed(f"{kind}({number_text(repr(number))})", dtype)


def _narrowed(words: str, dtype: torch.dtype) -> str:
    return f"convert<{TYPES[dtype]}>({words})" if dtype in (torch.float16, torch.bfloat16) else words


def _as_float(number: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.inf if number > 0 else -math.inf
