"""The elementwise operations of loop bodies: how many arguments, which type comes out, and what each means.

Arguments of one operation have one type (`where` after its condition); conversions are written out as `to_dtype`. The
meaning is given in torch, for the interpreter; code generators have tables of their own, and tests/unit/loop/test_op.py
holds that none misses an entry.

What is not in this table, as loads and reductions, has a kind of instruction of its own: `stoker/loop/instruction.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from stoker.errors import OUTSIDE
from stoker.loop.philox import philox


class ResultType(Enum):
    """The type of a result."""

    SAME = "that of the arguments"
    BOOL = "bool"
    SECOND = "that of the second argument"


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One operation. `cost` is in additions, for deciding what to compute twice."""

    arity: int
    meaning: Callable[..., Any]
    result: ResultType = ResultType.SAME
    cost: int = 1


def _floor_divide(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="floor")


def _truncate_divide(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="trunc")


def _normal_tail(x: Any) -> Any:
    return torch.special.ndtr(-x.abs())


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a times b plus c, rounded once (of float32: twice, which the interpreter may)."""
    return (a.double() * b.double() + c.double()).to(a.dtype)


def _plus_at(number: Any, address: Any) -> Any:
    assert not address.any(), "the interpreter has no memory of a device"
    return number


def _shift(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(a, b)


_ARITHMETIC: dict[str, Elementwise] = {
    "add": Elementwise(2, torch.add),
    "sub": Elementwise(2, torch.sub),
    "mul": Elementwise(2, torch.mul),
    "div": Elementwise(2, torch.div, cost=4),
    "floor_divide": Elementwise(2, _floor_divide, cost=8),
    "truncate_divide": Elementwise(2, _truncate_divide, cost=8),
    "remainder": Elementwise(2, torch.remainder, cost=8),
    "fmod": Elementwise(2, torch.fmod, cost=8),
    "neg": Elementwise(1, torch.neg),
    "abs": Elementwise(1, torch.abs),
    "sign": Elementwise(1, torch.sign),
    "floor": Elementwise(1, torch.floor),
    "ceil": Elementwise(1, torch.ceil),
    "round": Elementwise(1, torch.round),
    "trunc": Elementwise(1, torch.trunc),
    "sqrt": Elementwise(1, torch.sqrt, cost=4),
    "rsqrt": Elementwise(1, torch.rsqrt, cost=8),
    "reciprocal": Elementwise(1, torch.reciprocal, cost=4),
    "minimum": Elementwise(2, torch.minimum),
    "maximum": Elementwise(2, torch.maximum),
    "relu": Elementwise(1, torch.relu),
    "copysign": Elementwise(2, torch.copysign),
    "left_shift": Elementwise(2, torch.bitwise_left_shift),
    "right_shift": Elementwise(2, torch.bitwise_right_shift),
}

_FUNCTIONS: dict[str, Elementwise] = {
    name: Elementwise(1, getattr(torch, name), cost=20)
    for name in [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "lgamma",
        "sigmoid",
    ]
} | {
    "pow": Elementwise(2, torch.pow, cost=40),
    "atan2": Elementwise(2, torch.atan2, cost=30),
    "decay": Elementwise(
        1, torch.exp, cost=16
    ),  # e^x for x of at most 0; what is smaller than a normal number may be 0
    "normal_tail": Elementwise(
        1, _normal_tail, cost=24
    ),  # the normal distribution below -|x|, to an absolute error of 3e-7
    "quick_sin": Elementwise(
        1, torch.sin, cost=8
    ),  # as eager's kernels of a device draw it: by its fastest instruction
    "fma": Elementwise(3, _fma),
    "plus_at": Elementwise(2, _plus_at),  # a number, and what lies at an address of the device; 0 is none
    "philox": Elementwise(5, philox, cost=40),  # of (seed, offset, block, lane, word): `stoker.loop.philox`
}

_LOGIC: dict[str, Elementwise] = {
    "eq": Elementwise(2, torch.eq, ResultType.BOOL),
    "ne": Elementwise(2, torch.ne, ResultType.BOOL),
    "lt": Elementwise(2, torch.lt, ResultType.BOOL),
    "le": Elementwise(2, torch.le, ResultType.BOOL),
    "gt": Elementwise(2, torch.gt, ResultType.BOOL),
    "ge": Elementwise(2, torch.ge, ResultType.BOOL),
    "isnan": Elementwise(1, torch.isnan, ResultType.BOOL),
    "isinf": Elementwise(1, torch.isinf, ResultType.BOOL),
    "bitwise_not": Elementwise(1, torch.bitwise_not),
    "bitwise_and": Elementwise(2, torch.bitwise_and),
    "bitwise_or": Elementwise(2, torch.bitwise_or),
    "bitwise_xor": Elementwise(2, torch.bitwise_xor),
    "where": Elementwise(3, torch.where, ResultType.SECOND),
}

ELEMENTWISE: dict[str, Elementwise] = _ARITHMETIC | _FUNCTIONS | _LOGIC

REDUCTIONS: tuple[str, ...] = (
    "sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "xor_sum", "mean", "moment",
)  # fmt: skip
MOMENTS: tuple[str, ...] = ("mean", "moment")
"""Of floating-point values, found in one pass over memory: the mean, and the sum of squared distances from it."""
SCANS: tuple[str, ...] = ("sum", "prod", "max", "min", "argmax", "argmin", "logaddexp")
"""Running reductions. Of equal extremes argmax and argmin name the latest, as cummax and cummin do."""


def outside_error(code: int) -> Exception:
    """The exception that a kernel's result stands for: that of the first family."""
    first = (code & -code).bit_length() - 1
    kind, words = list(OUTSIDE.values())[first]
    return kind(words)


def outside_code(kind: str) -> int:
    """The bit of a family."""
    return 1 << list(OUTSIDE).index(kind)


COMBINES: tuple[str | None, ...] = (None, "set", "add", "mul", "max", "min")
"""What a store does with what is in memory already."""
