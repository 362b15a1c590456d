"""The elementwise operations of loop bodies: how many arguments, and which type comes out.

Arguments of one operation have one type (`where` after its condition); conversions are written out as `to_dtype`. What
each means, tests/stages/loop_oracle.py says in torch; code generators have tables of their own, and
tests/unit/loop/test_op.py holds that none misses an entry.

What is not in this table, as loads and reductions, has a kind of instruction of its own: `stoker/loop/instruction.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stoker.errors import OUTSIDE


class ResultType(Enum):
    """The type of a result."""

    SAME = "that of the arguments"
    BOOL = "bool"
    SECOND = "that of the second argument"


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One operation. `cost` is in additions, for deciding what to compute twice."""

    arity: int
    result: ResultType
    cost: int


_TABLE: tuple[tuple[ResultType, int, int, str], ...] = (
    (ResultType.SAME, 1, 1, "neg abs sign floor ceil round trunc relu bitwise_not"),
    (ResultType.SAME, 1, 4, "sqrt reciprocal"),
    (ResultType.SAME, 1, 8, "rsqrt"),
    (ResultType.SAME, 1, 20, "exp exp2 expm1 log log2 log10 log1p erf erfc lgamma sigmoid"),
    (ResultType.SAME, 1, 20, "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"),
    (ResultType.SAME, 1, 16, "decay"),  # e^x for x of at most 0; what is smaller than a normal number may be 0
    (ResultType.SAME, 1, 24, "normal_tail"),  # the normal distribution below -|x|, to an absolute error of 3e-7
    (ResultType.SAME, 1, 8, "quick_sin"),  # as eager's kernels of a device draw it: by its fastest instruction
    (ResultType.SAME, 2, 1, "add sub mul minimum maximum copysign left_shift right_shift"),
    (ResultType.SAME, 2, 1, "bitwise_and bitwise_or bitwise_xor"),
    (ResultType.SAME, 2, 4, "div"),
    (ResultType.SAME, 2, 8, "floor_divide truncate_divide remainder fmod"),
    (ResultType.SAME, 2, 30, "atan2"),
    (ResultType.SAME, 2, 40, "pow"),
    (ResultType.SAME, 2, 1, "plus_at"),  # a number, and what lies at an address of the device; 0 is none
    (ResultType.SAME, 3, 1, "fma"),
    (ResultType.SAME, 5, 40, "philox"),  # of (seed, offset, block, lane, word): `stoker.loop.philox`
    (ResultType.BOOL, 1, 1, "isnan isinf"),
    (ResultType.BOOL, 2, 1, "eq ne lt le gt ge"),
    (ResultType.SECOND, 3, 1, "where"),
)
"""The type of the result, how many arguments, the cost, and the operations of which this holds."""


ELEMENTWISE: dict[str, Elementwise] = {
    name: Elementwise(arity, result, cost) for result, arity, cost, names in _TABLE for name in names.split()
}

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
