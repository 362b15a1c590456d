"""A loop body as data: instructions in static single assignment form, and the handler that records them.

In:  a body function, run once under a `Recorder`.
Out: a tuple of `Instruction`. A value is the number of the instruction that made it. Equal instructions are one.

What must hold (checked by `stoker.loop.check`): arguments come before uses, types agree as `stoker.loop.op` says, an index
uses loop symbols, size symbols and symbols made by an earlier `indirect` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from stoker.loop.op import ELEMENTWISE, Result
from stoker.shape.expr import Expr, Symbol, symbol


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation. `data` is what it needs besides values:

    load     (buffer, index); argument, if any: a condition without which nothing is read and the value is 0
    store    (buffer, index, combine); argument: the value. With combine None, the first to write there; "set" overwrites what
             an earlier node wrote, "add", "mul", "max" and "min" combine with it, and iterations may meet in one place
    constant the number
    index    the expression
    indirect (symbol, size, kind): names an integer value, wrapped if negative, for use in indices; it must be in range wherever
             the second argument, a condition, holds; the kind says what is raised otherwise (`stoker.loop.op.OUTSIDE`)
    reduce   the kind; the value exists after the inner loops
    scan     the kind; the inner loops run in order, and the value is that of all iterations up to this one
    """

    op: str
    arguments: tuple[int, ...]
    dtype: torch.dtype
    data: Any = None


class Value(NamedTuple):
    """What body functions pass around: an instruction's number, and its type."""

    number: int
    dtype: torch.dtype


class Recorder:
    """The handler that writes down what a body does."""

    def __init__(self, wide: bool = False) -> None:
        self.wide = wide
        """Does a value that was narrowed and is widened again stay as it was?"""
        self.instructions: list[Instruction] = []
        self.memo: dict[Any, Value] = {}
        """For tensors computed on the fly: (tensor, index, condition) to its value."""
        self.origins: dict[str, None] = {}
        """The operators of those tensors, in order."""
        self.condition: int | None = None
        self._known: dict[Instruction, Value] = {}
        self._indirect = 0

    def emit(self, op: str, arguments: tuple[int, ...], dtype: torch.dtype, data: Any = None) -> Value:
        """The value of an instruction, recorded unless it is there already."""
        instruction = Instruction(op, arguments, dtype, data)
        found = self._known.get(instruction)
        if found is None:
            found = self._known[instruction] = Value(len(self.instructions), dtype)
            self.instructions.append(instruction)
        return found

    def call(self, name: str, arguments: tuple[Value, ...]) -> Value:
        """An elementwise operation."""
        operation = ELEMENTWISE[name]
        dtype = arguments[0].dtype
        if operation.result is Result.BOOL:
            dtype = torch.bool
        elif operation.result is Result.SECOND:
            dtype = arguments[1].dtype
        return self.emit(name, tuple(a.number for a in arguments), dtype)

    def load(self, buffer: str, index: Expr, dtype: torch.dtype) -> Value:
        condition = () if self.condition is None else (self.condition,)
        return self.emit("load", condition, dtype, (buffer, index))

    def store(self, buffer: str, index: Expr, value: Value, combine: str | None = None) -> None:
        self.instructions.append(Instruction("store", (value.number,), value.dtype, (buffer, index, combine)))

    def constant(self, number: Any, dtype: torch.dtype) -> Value:
        # 0.0 == -0.0 and 1 == True, but they are different constants.
        key = ("constant", repr(number), dtype)
        if key not in self.memo:
            self.memo[key] = Value(len(self.instructions), dtype)
            self.instructions.append(Instruction("constant", (), dtype, number))
        return self.memo[key]

    def index(self, expr: Expr, dtype: torch.dtype) -> Value:
        if expr.is_constant:
            return self.constant(expr.offset, dtype)
        return self.emit("index", (), dtype, expr)

    def indirect(self, value: Value, size: Expr, kind: str = "index") -> Symbol:
        """A symbol for an index that was computed."""
        key = ("indirect", value.number, size, kind, self.condition)
        condition = () if self.condition is None else (self.condition,)
        if key not in self.memo:
            name = symbol(f"x{self._indirect}")
            self._indirect += 1
            self.instructions.append(
                Instruction("indirect", (value.number, *condition), torch.int64, (name, size, kind))
            )
            self.memo[key] = name  # type: ignore[assignment]
        return self.memo[key]  # type: ignore[return-value]

    def to_dtype(self, value: Value, dtype: torch.dtype) -> Value:
        if self.wide and dtype is torch.float32 and value.dtype in (torch.float16, torch.bfloat16):
            made = self.instructions[value.number]
            if made.op == "to_dtype" and self.instructions[made.arguments[0]].dtype is dtype:
                return Value(made.arguments[0], dtype)
        return value if value.dtype is dtype else self.emit("to_dtype", (value.number,), dtype)

    def reduce(self, kind: str, value: Value, dtype: torch.dtype) -> Value:
        return self.emit("reduce", (value.number,), dtype, kind)

    def scan(self, kind: str, value: Value, dtype: torch.dtype) -> Value:
        return self.emit("scan", (value.number,), dtype, kind)

    def masked(self, condition: Value, body: Callable[[], Value], otherwise: Value) -> Value:
        """The body's value where the condition holds; what the body loads is not read elsewhere."""
        with self._under(condition):
            value = body()
        return self.call("where", (condition, value, otherwise))

    @contextmanager
    def _under(self, condition: Value) -> Iterator[None]:
        outer = self.condition
        if outer is None:
            self.condition = condition.number
        else:
            self.condition = self.call("bitwise_and", (Value(outer, torch.bool), condition)).number
        try:
            yield
        finally:
            self.condition = outer
