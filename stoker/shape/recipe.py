"""Floats that are not known when a program is captured: symbols, and what is computed from them and from sizes.

A recipe is a tree: an operation over recipes, integer expressions, float symbols and numbers. It can be evaluated for given values,
and written into a graph by the function that each operation has for that (`Operation.target`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker.shape.expr import Expr, Symbol, free_symbols, text


@dataclass(frozen=True, slots=True)
class FloatSymbol:
    """A float that is not fixed. The serial number is that of its environment."""

    name: str
    serial: int


@dataclass(frozen=True, slots=True)
class Operation:
    """What is done. `target` does it in a graph, to symbolic numbers as well; without one, the result is fixed instead."""

    name: str
    function: Callable[..., float]
    target: Callable[..., Any] | None = None
    infix: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a float is computed."""

    operation: Operation
    parts: tuple[Any, ...]

    @property
    def number(self) -> float | None:
        """The number, if it is one."""
        return self.parts[0] if self.operation is NUMBER else None

    @property
    def symbols(self) -> frozenset[FloatSymbol | Symbol]:
        """What its value depends on."""
        return frozenset().union(*map(_symbols, self.parts))

    def evaluate(self, value: Callable[[Any], float]) -> float:
        """The float, where `value` tells those of symbols and of integer expressions."""
        return self.operation.function(*(_evaluated(part, value) for part in self.parts))

    def __str__(self) -> str:
        shown = [
            text(p) if isinstance(p, Expr) else p.name if isinstance(p, FloatSymbol) else str(p) for p in self.parts
        ]
        if self.operation in (NUMBER, SYMBOL):
            return shown[0]
        if self.operation.infix:
            return f"({shown[0]} {self.operation.name} {shown[1]})"
        return f"{self.operation.name}({', '.join(shown)})"


def _symbols(part: Any) -> frozenset[FloatSymbol | Symbol]:
    match part:
        case Recipe():
            return part.symbols
        case FloatSymbol():
            return frozenset({part})
        case Expr():
            return frozenset(free_symbols(part))
    return frozenset()


def _evaluated(part: Any, value: Callable[[Any], float]) -> float:
    match part:
        case Recipe():
            return part.evaluate(value)
        case FloatSymbol() | Expr():
            return value(part)
    return part


def power(base: Any, exponent: Any) -> Any:
    """`base ** exponent` where one of them is a float, which may be symbolic. Python's, of any sign: torch's own asks for the base
    not to be negative."""
    symbolic = next((v for v in (base, exponent) if isinstance(v, (torch.SymFloat, torch.SymInt))), None)
    if symbolic is None:
        return base**exponent
    nodes = [
        v.node.sym_float() if isinstance(v, (torch.SymFloat, torch.SymInt)) else symbolic.node.wrap_float(float(v))
        for v in (base, exponent)
    ]
    return torch.SymFloat(nodes[0].float_pow(nodes[1]))


def _function(name: str) -> Callable[[Any], Any]:
    """A function of `math`, of symbolic floats as well."""
    plain = getattr(math, name)

    def function(x: Any) -> Any:
        return torch.SymFloat(getattr(x.node, f"sym_{name}")()) if isinstance(x, torch.SymFloat) else plain(x)

    function.__name__ = function.__qualname__ = f"float_{name}"
    return function


def _extreme(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`min` or `max` of two floats, of symbolic ones as well."""

    def function(a: Any, b: Any) -> Any:
        symbolic = next((v for v in (a, b) if isinstance(v, torch.SymFloat)), None)
        if symbolic is None:
            return choose(a, b)
        left, right = (v.node if isinstance(v, torch.SymFloat) else symbolic.node.wrap_float(float(v)) for v in (a, b))
        return torch.SymFloat(getattr(left, f"sym_{choose.__name__}")(right))

    function.__name__ = function.__qualname__ = f"float_{choose.__name__}"
    return function


float_min, float_max = _extreme(min), _extreme(max)


def _rounded_to(x: Any, digits: int) -> Any:
    """`round(x, digits)`, of symbolic floats as well."""
    return torch.SymFloat(x.node.round(digits)) if isinstance(x, torch.SymFloat) else round(x, digits)


def _to_integer(name: str, plain: Callable[[float], int]) -> Callable[[Any], Any]:
    """A function from floats to integers, of symbolic floats as well."""

    def function(x: Any) -> Any:
        return torch.SymInt(getattr(x.node, name)()) if isinstance(x, torch.SymFloat) else plain(x)

    function.__name__ = function.__qualname__ = f"integer_{name}"
    return function


TO_INTEGER: dict[Callable[[float], int], Callable[[Any], Any]] = {
    plain: _to_integer(plain.__name__, plain) for plain in (math.floor, math.ceil, math.trunc, round)
}
"""How a graph makes an integer of a float, by the function that does it in Python."""


def integer_of_truth(condition: Any) -> Any:
    """`int(condition)`, of symbolic ones as well."""
    return torch.SymInt(condition.node.sym_int()) if isinstance(condition, torch.SymBool) else int(condition)


NUMBER = Operation("number", lambda number: number)
SYMBOL = Operation("symbol", lambda number: number)
OF_INTEGER = Operation("float", float, torch.sym_float)
OF_QUOTIENT = Operation("/", operator.truediv, operator.truediv, infix=True)
"""Of two integers."""
NEGATIVE = Operation("-", operator.neg, operator.neg)
MAGNITUDE = Operation("abs", abs, operator.abs)
ROUNDED = Operation("round", round, _rounded_to)
"""To a number of digits."""

BINARY: dict[str, Operation] = {
    "add": Operation("+", operator.add, operator.add, infix=True),
    "sub": Operation("-", operator.sub, operator.sub, infix=True),
    "mul": Operation("*", operator.mul, operator.mul, infix=True),
    "mod": Operation("%", operator.mod, infix=True),
    "float_truediv": Operation("/", operator.truediv, operator.truediv, infix=True),
    "float_pow": Operation("**", operator.pow, power, infix=True),
    "sym_min": Operation("min", min, float_min),
    "sym_max": Operation("max", max, float_max),
}
BINARY |= {"truediv": BINARY["float_truediv"], "pow": BINARY["float_pow"]}

_UNARY_NAMES = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2", "exp", "log")
UNARY = {name: Operation(name, getattr(math, name), _function(name)) for name in _UNARY_NAMES}
"""By the names that torch gives the methods of a symbolic float."""
