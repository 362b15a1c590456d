"""Functions of `math` that take symbolic numbers: the result is a symbolic float. Others fix the number (`PURE_MODULES`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from stoker.capture.handlers import fold_pure, handles
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import VaryingFloat
from stoker.shape.recipe import UNARY, Operation

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


def _of_symbol(m: Machine, real: Any, operation: Operation, args: tuple[Value, ...]) -> Value:
    value = args[0] if len(args) == 1 else None
    if isinstance(value, VaryingFloat):
        value = value.symbolic()
    if not isinstance(value, SymbolicValue) or operation.target is None:
        return fold_pure(m, real, list(args), {})  # type: ignore[return-value]  # functions of `math` are pure
    target = operation.target
    return m.wrap.number(m.concrete.run(lambda: target(torch.sym_float(value.symbol))))


def _to_integer(m: Machine, real: Any, args: tuple[Value, ...]) -> Value:
    """floor, ceil, trunc: of sizes and of what only data tells they are symbolic integers."""
    value = args[0] if len(args) == 1 else None
    if not isinstance(value, SymbolicValue):
        return fold_pure(m, real, list(args), {})  # type: ignore[return-value]  # functions of `math` are pure
    return m.wrap.number(m.concrete.run(real, value.symbol))


def _register() -> None:
    for real in (math.floor, math.ceil, math.trunc):
        handles(real)(lambda m, *args, real=real: _to_integer(m, real, args))
    for name, operation in UNARY.items():
        real = getattr(math, name)
        handles(real)(lambda m, *args, real=real, operation=operation: _of_symbol(m, real, operation, args))


_register()
