"""Symbolic integers, booleans and floats: sizes not yet known, and what is computed from them.

Arithmetic runs on torch.SymInt, whose node is our shape engine; deciding a comparison takes the hint's side and leaves
one guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.python_operators import BINARY, COMPARE, UNARY
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import MOST_COMPARED, NotConstant, Value
from stoker.shape.recipe import OF_INTEGERS, floor_quotient, integer_of_truth, power, remainder
from stoker.shape.symnode import BoolNode

OF_FLOATS = {"**": power, "//": floor_quotient, "%": remainder}
"""Operators that torch computes otherwise than Python where one of the numbers is a float."""

SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat)
MOST_SHIFTED = 31


def masked(symbol: Any, mask: int) -> Any:
    """`symbol & mask`: for each run of ones, the remainder by what lies above it less that by its lowest bit."""
    if mask < 0:
        return symbol - masked(symbol, ~mask)
    total = 0
    while mask:
        lowest = mask & -mask
        above = (mask + lowest) & ~mask
        total += symbol % above - symbol % lowest
        mask -= above - lowest
    return total


OF_BITS: dict[str, Callable[[Any, int], Any]] = {
    "&": masked,
    "|": lambda symbol, known: symbol + known - masked(symbol, known),
    "^": lambda symbol, known: symbol + known - 2 * masked(symbol, known),
}


def in_bits(operator: str, left: Any, right: Any) -> Callable[[Any, Any], Any] | None:
    """Of a symbol and a plain number, the arithmetic that an operator on bits is; None where it is none."""
    known, symbol = (left, right) if type(left) is int else (right, left)
    if type(known) is not int or not isinstance(symbol, torch.SymInt) or not -(1 << 32) <= known < 1 << 32:
        return None
    if operator in OF_BITS:
        return lambda a, b: OF_BITS[operator](symbol, known)
    if symbol is right or not 0 <= known < MOST_SHIFTED:
        return None
    return {"<<": lambda a, b: a * (1 << b), ">>": lambda a, b: a // (1 << b)}.get(operator)


class SymbolicValue(Value):
    """A number that is an expression over the sizes of the inputs."""

    has_identity = False

    def __init__(self, symbol: Any) -> None:
        self.symbol = symbol

    def python_type(self) -> type:
        if isinstance(self.symbol, torch.SymInt):
            return int
        return bool if isinstance(self.symbol, torch.SymBool) else float

    def describe(self) -> str:
        return f"the symbolic {self.python_type().__name__} {self.symbol}"

    @property
    def untold(self) -> bool:
        """Does only running the program tell it?"""
        return not self.symbol.node.has_hint()

    def as_number(self) -> Any:
        """The symbol for arithmetic; a number where guards say which. A condition counts as 1 or 0, which is decided where it can be."""
        if isinstance(self.symbol, torch.SymInt) and (known := self.symbol.node.maybe_as_int()) is not None:
            return known
        if not isinstance(self.symbol, torch.SymBool):
            return self.symbol
        return integer_of_truth(self.symbol) if self.untold else bool(self.symbol)

    def truth(self, m: Machine) -> bool:
        return m.concrete.run(bool, self.symbol)

    def unary(self, m: Machine, operator: str) -> Value:
        return m.wrap.number(m.concrete.run(UNARY[operator], self.symbol))

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        number = m.concrete.number(other)
        if number is None:
            return None
        if isinstance(number, complex):
            known = Constant(self.specialize(m))
            return m.operators.binary(operator, *((other, known) if reflected else (known, other)))
        mine = self.as_number()
        left, right = (number, mine) if reflected else (mine, number)
        function = in_bits(operator.removesuffix("="), left, right) or BINARY[operator]
        if any(isinstance(v, (float, torch.SymFloat)) for v in (left, right)):
            function = OF_FLOATS.get(operator.removesuffix("="), function)
        return m.wrap.number(m.concrete.run(lambda: function(left, right)))

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        number = m.concrete.number(other)
        if number is None:
            return None
        if isinstance(number, complex):
            return m.operators.compare(operator, Constant(self.specialize(m)), other)
        mine, function = self.as_number(), COMPARE[operator]
        if isinstance(mine, torch.SymInt) and isinstance(number, float) and math.isfinite(number):
            return m.wrap.number(compared_exactly(mine, function, number))
        return m.wrap.number(m.concrete.run(lambda: function(self.symbol, number)))

    def attribute(self, m: Machine, name: str) -> Value:
        return Constant(self.specialize(m)).attribute(m, name)

    def specialize(self, m: Machine) -> Any:
        """Give up symbolic: the value becomes the one seen now, under a guard."""
        return m.concrete.run(self.python_type(), self.symbol)

    def constant(self) -> Any:
        raise NotConstant("symbolic")

    def is_none_of(self, m: Machine, keys: Collection[Any]) -> bool:
        """It is compared with a few keys: each comparison is a guard, and it may stay a symbol."""
        if self.untold or len(keys) > MOST_COMPARED:
            return False
        numbers = [key for key in keys if isinstance(key, (int, float))]
        return not any(m.concrete.run(lambda key=key: bool(self.as_number() == key)) for key in numbers)

    def hash_key(self, m: Machine) -> Any:
        return self.specialize(m)

    def call(self, m: Machine, args: Any, kwargs: Any) -> Value:
        m.exceptions.raise_(TypeError, f"'{self.python_type().__name__}' object is not callable")

    def emit(self, e: Emitting) -> None:
        node = e.m.sizes.node_for(e.m, self.symbol)
        if isinstance(node, (int, float, bool)):
            e.const(node)
        else:
            e.load_output(node)


def compared_exactly(integer: torch.SymInt, function: Callable[..., bool], number: float) -> Any:
    """A comparison of an integer with a float, as Python does it: torch makes a float of the integer first, and may round it."""
    return torch.SymBool(BoolNode(integer.node.env, OF_INTEGERS[function](integer.node.expr, number)))
