"""Floats that are not known when a program is captured: symbols, and what is computed from them and from sizes.

A recipe is a tree: an operation over recipes, integer expressions, float symbols and numbers. It can be evaluated for given values,
and written into a graph by the function that each operation has for that (`Operation.target`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker.shape.condition import Condition, Eq, Ge, Gt, Le, Lt, Ne, known
from stoker.shape.expr import Expr, Symbol, text
from stoker.shape.walk import evaluate, free_symbols


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

    def at(self, numbers: Numbers) -> float:
        """The float, where its symbols are these numbers."""

        def value(part: Any) -> float:
            if isinstance(part, FloatSymbol):
                return numbers[part]
            return evaluate(part, {s: int(numbers[s]) for s in free_symbols(part)})

        return self.evaluate(value)

    def __str__(self) -> str:
        shown = [
            text(p) if isinstance(p, Expr) else p.name if isinstance(p, FloatSymbol) else str(p) for p in self.parts
        ]
        if self.operation in (NUMBER, SYMBOL):
            return shown[0]
        if self.operation.infix:
            return f"({shown[0]} {self.operation.name} {shown[1]})"
        return f"{self.operation.name}({', '.join(shown)})"


Numbers = Mapping[FloatSymbol | Symbol, float]


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


def _of_numbers(name: str, method: str, plain: Callable[..., float]) -> Callable[..., Any]:
    """A function of Python from numbers to a float, of symbolic numbers as well: `method` is what their nodes call it."""

    def function(*numbers: Any) -> Any:
        symbolic = next((n for n in numbers if isinstance(n, (torch.SymFloat, torch.SymInt))), None)
        if symbolic is None:
            return plain(*numbers)
        first, *others = (
            n.node.sym_float() if isinstance(n, (torch.SymFloat, torch.SymInt)) else symbolic.node.wrap_float(float(n))
            for n in numbers
        )
        return torch.SymFloat(getattr(first, method)(*others))

    function.__name__ = function.__qualname__ = f"float_{name}"
    return function


power = _of_numbers("pow", "float_pow", operator.pow)
"""`base ** exponent` of floats of any sign: torch's own asks for the base not to be negative."""
floor_quotient = _of_numbers("floordiv", "float_floordiv", operator.floordiv)
"""`a // b` of floats: torch's own rounds the quotient, which is rounded before."""
remainder = _of_numbers("mod", "mod", operator.mod)
float_min, float_max = _of_numbers("min", "sym_min", min), _of_numbers("max", "sym_max", max)


def _rounded_to(x: Any, digits: int) -> Any:
    """`round(x, digits)`, of symbolic floats as well."""
    return torch.SymFloat(x.node.round(digits)) if isinstance(x, torch.SymFloat) else round(x, digits)


def _to_integer(name: str, plain: Callable[[float], int]) -> Callable[[Any], Any]:
    """A function from floats to integers, of symbolic floats as well."""

    def function(x: Any) -> Any:
        return torch.SymInt(getattr(x.node, name)()) if isinstance(x, torch.SymFloat) else plain(x)

    function.__name__ = function.__qualname__ = f"integer_{name}"
    return function


def is_negative(x: float) -> int:
    return int(x < 0)


def is_at_most_zero(x: float) -> int:
    return int(x <= 0)


def is_zero(x: float) -> int:
    return int(x == 0)


def is_nan(x: float) -> int:
    return int(math.isnan(x))


def is_infinite(x: float) -> int:
    return int(math.isinf(x))


def is_finite(x: float) -> int:
    return int(math.isfinite(x))


ANSWERS = (is_negative, is_at_most_zero, is_zero, is_nan, is_infinite, is_finite)
"""1 or 0."""
TO_INTEGER: dict[Callable[[float], int], Callable[[Any], Any]] = {
    plain: _to_integer(plain.__name__, plain) for plain in (math.floor, math.ceil, math.trunc, round, *ANSWERS)
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
    "mod": Operation("%", operator.mod, remainder, infix=True),
    "float_floordiv": Operation("//", operator.floordiv, floor_quotient, infix=True),
    "float_truediv": Operation("/", operator.truediv, operator.truediv, infix=True),
    "float_pow": Operation("**", operator.pow, power, infix=True),
    "sym_min": Operation("min", min, float_min),
    "sym_max": Operation("max", max, float_max),
}
BINARY |= {"truediv": BINARY["float_truediv"], "pow": BINARY["float_pow"]}

_NAMES = """
sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
erf erfc gamma lgamma degrees radians fabs ulp atan2 pow copysign fmod remainder nextafter hypot
"""
MATH = {
    name: Operation(name, getattr(math, name), _of_numbers(name, f"sym_{name}", getattr(math, name)))
    for name in _NAMES.split()
}
_exact_sum = lambda *numbers: math.fsum(numbers)  # noqa: E731
MATH["fsum"] = Operation("fsum", _exact_sum, _of_numbers("fsum", "sym_fsum", _exact_sum))
"""Functions of `math` from floats to a float. A symbolic float has them as methods, under the names that torch has for some."""
TRUTHS = (math.isnan, math.isinf, math.isfinite)
"""Functions of `math` that say something of a float."""


OF_INTEGERS: dict[Callable[..., bool], Callable[[Expr, float], Condition]] = {
    operator.le: lambda n, number: Le(n, math.floor(number)),
    operator.lt: lambda n, number: Lt(n, math.ceil(number)),
    operator.ge: lambda n, number: Ge(n, math.ceil(number)),
    operator.gt: lambda n, number: Gt(n, math.floor(number)),
    operator.eq: lambda n, number: Eq(n, int(number)) if number.is_integer() else known(False),
    operator.ne: lambda n, number: Ne(n, int(number)) if number.is_integer() else known(True),
}
_TURNED = {operator.le: operator.ge, operator.lt: operator.gt, operator.ge: operator.le, operator.gt: operator.lt}


def of_integers(function: Callable[..., bool], recipes: Sequence[Recipe]) -> Condition | None:
    """The comparison of an integer that became a float with a number, as one of integers: a step that is compared with a share of all."""
    if len(recipes) != 2 or function not in OF_INTEGERS:
        return None
    a, b = recipes
    if b.operation is OF_INTEGER and a.number is not None:
        a, b, function = b, a, _TURNED.get(function, function)
    if a.operation is not OF_INTEGER or b.number is None or not math.isfinite(b.number):
        return None
    return OF_INTEGERS[function](a.parts[0], b.number)


BY_SIGN: dict[Callable[..., bool], tuple[str, Callable[[float], int], bool, bool]] = {
    operator.lt: ("<", is_negative, False, True),
    operator.le: ("<=", is_at_most_zero, False, True),
    operator.gt: (">", is_negative, True, True),
    operator.ge: (">=", is_at_most_zero, True, True),
    operator.eq: ("==", is_zero, False, True),
    operator.ne: ("!=", is_zero, False, False),
}
"""How a comparison is written, what it asks of a difference, whether of the right side less the left, and the answer that it holds by."""
OF_ONE: dict[Callable[..., bool], Callable[[float], int]] = dict(zip(TRUTHS, (is_nan, is_infinite, is_finite)))


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one float, `asks`, and the answer by which another question holds, in `words`."""

    asks: Callable[[float], int]
    recipe: Recipe
    answer: bool
    words: str


def as_question(function: Callable[..., bool], recipes: Sequence[Recipe]) -> Question | None:
    """A comparison with a finite number asks for the sign of a difference, which no rounding changes, nor an infinity or nan."""
    if function in OF_ONE:
        return Question(OF_ONE[function], recipes[0], True, f"{function.__name__}({recipes[0]})")
    if function in (operator.eq, operator.ne) and recipes[0] == recipes[1]:
        return Question(is_nan, recipes[0], function is operator.ne, f"isnan({recipes[0]})")
    if function not in BY_SIGN or not any(r.number is not None and math.isfinite(r.number) for r in recipes):
        return None
    text, asks, turned, answer = BY_SIGN[function]
    difference = Recipe(BINARY["sub"], tuple(recipes[::-1] if turned else recipes))
    return Question(asks, difference, answer, f"{recipes[0]} {text} {recipes[1]}")
