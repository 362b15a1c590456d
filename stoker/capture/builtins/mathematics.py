"""Functions of `math` that take symbolic numbers: the result is a symbolic number, or an answer under a guard. Others fix the
number (`PURE_MODULES`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from stoker.capture.handlers import fold_pure, handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import folding
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import symbolic
from stoker.shape.recipe import MATH, TRUTHS


def _float(real: Any, *numbers: Any) -> Any:
    target = MATH[real.__name__].target
    assert target is not None
    return target(*numbers)


def _logarithm(real: Any, *numbers: Any) -> Any:
    """As Python does it with a base: a quotient of two logarithms."""
    first, *base = (_float(real, n) for n in numbers)
    return first / base[0] if base else first


def _truth(real: Any, number: Any) -> Any:
    """What is said of a float is guarded, not the float; of one that only data tells, only data tells it."""
    number = torch.sym_float(number)
    if not isinstance(number, torch.SymFloat):
        return real(number)
    answer = torch.SymBool(number.node.asked(real))
    return bool(answer) if answer.node.has_hint() else answer


def _integer(real: Any, number: Any) -> Any:
    return real(number)


def _whole_root(real: Any, number: Any) -> Any:
    """Of an integer that a float holds, the root's floor: no rounding of it reaches the next integer."""
    exact = number >= 0 and number < 1 << 52
    return math.floor(_float(math.sqrt, number)) if exact else real(int(number))


OF_TWO = (math.atan2, math.pow, math.copysign, math.fmod, math.remainder, math.nextafter, math.hypot)
OF_SYMBOLS: dict[Callable[..., Any], tuple[Callable[..., Any], tuple[int, ...]]] = {
    **{getattr(math, name): (_float, (1,)) for name in MATH.keys() - {"fsum"}},
    **dict.fromkeys(OF_TWO, (_float, (2,))),
    **dict.fromkeys(TRUTHS, (_truth, (1,))),
    **dict.fromkeys((math.floor, math.ceil, math.trunc), (_integer, (1,))),
    math.isqrt: (_whole_root, (1,)),
    math.log: (_logarithm, (1, 2)),
}
"""What each function is of symbolic numbers, and of how many."""


def _of_symbols(m: Machine, real: Any, made: Callable[..., Any], numbers: list[Value], args: list[Value]) -> Value:
    """`real` of numbers, some of them symbols; of others it is what Python says of the arguments."""
    values = list(map(symbolic, numbers))
    if not any(isinstance(v, SymbolicValue) for v in values) or not all(map(_is_number, values)):
        return fold_pure(m, real, args, {})  # type: ignore[return-value]  # functions of `math` are pure
    return m.wrap.number(m.concrete.run(lambda: made(real, *map(m.concrete.number, values))))


def _register(real: Any, made: Callable[..., Any], counts: tuple[int, ...]) -> None:
    @handles(real)
    def of_symbols(m: Machine, *args: Value) -> Value:
        return _of_symbols(m, real, made, list(args) if len(args) in counts else [], list(args))


@handles(math.fsum)
def fsum(m: Machine, numbers: Value) -> Value:
    values = numbers.items_list(m)
    return _of_symbols(m, math.fsum, _float, values, [ListValue(values)])


def _is_number(value: Value) -> bool:
    return isinstance(value, SymbolicValue) or isinstance(value, Constant) and type(value.value) in (int, float, bool)


@handles(math.prod)
def prod(m: Machine, iterable: Value, *, start: Value = Constant(1)) -> Value:  # noqa: B008
    return m.wrap.object(folding.prod).call(m, [iterable, start], {})


for _real, (_made, _counts) in OF_SYMBOLS.items():
    _register(_real, _made, _counts)
