"""A loop body as data: instructions in static single assignment form, and the handler that records them.

In:  a body function, run once under a `Recorder`.
Out: a tuple of `LoopInstruction`. A value is the number of the instruction that made it. Equal instructions are one.

What must hold (checked by `stoker.loop.check`): arguments come before uses, types agree as `stoker.loop.op` says, an index
uses loop symbols, size symbols and symbols made by an earlier `indirect` only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.op import ELEMENTWISE, ResultType
from stoker.shape.expr import Expr, Symbol, symbol


class LoopValue(NamedTuple):
    """What body functions pass around: an instruction's number, and its type."""

    number: int
    dtype: torch.dtype


class Recorder:
    """The handler that writes down what a body does."""

    def __init__(self, wide: bool = False) -> None:
        self.wide = wide
        """Does a value that was narrowed and is widened again stay as it was?"""
        self.instructions: list[LoopInstruction] = []
        self.memo: dict[Hashable, LoopValue] = {}
        """For tensors computed on the fly: (tensor, index, condition) to its value."""
        self.origins: dict[str, None] = {}
        """The operators of those tensors, in order."""
        self.condition: int | None = None
        self._known: dict[LoopInstruction, LoopValue] = {}
        self._indirect: dict[Hashable, Symbol] = {}

    def emit(self, instruction: LoopInstruction) -> LoopValue:
        """The value of an instruction, recorded unless it is there already."""
        found = self._known.get(instruction)
        if found is None:
            found = self._known[instruction] = LoopValue(len(self.instructions), instruction.dtype)
            self.instructions.append(instruction)
        return found

    def call(self, name: str, arguments: tuple[LoopValue, ...]) -> LoopValue:
        """An elementwise operation."""
        operation = ELEMENTWISE[name]
        dtype = arguments[0].dtype
        if operation.result is ResultType.BOOL:
            dtype = torch.bool
        elif operation.result is ResultType.SECOND:
            dtype = arguments[1].dtype
        return self.emit(Apply(tuple(a.number for a in arguments), dtype, name))

    @property
    def _conditions(self) -> tuple[int, ...]:
        return () if self.condition is None else (self.condition,)

    def load(self, buffer: str, index: Expr, dtype: torch.dtype) -> LoopValue:
        return self.emit(Load(self._conditions, dtype, buffer, index))

    def store(self, buffer: str, index: Expr, value: LoopValue, combine: str | None = None) -> None:
        self.instructions.append(Store((value.number,), value.dtype, buffer, index, combine))

    def constant(self, number: bool | int | float, dtype: torch.dtype) -> LoopValue:
        return self.emit(Number.of(number, dtype))

    def index(self, expr: Expr, dtype: torch.dtype) -> LoopValue:
        if expr.is_constant:
            return self.constant(expr.offset, dtype)
        return self.emit(Index((), dtype, expr))

    def indirect(self, value: LoopValue, size: Expr, family: str = "index") -> Symbol:
        """A symbol for an index that was computed."""
        key = (value.number, size, family, self.condition)
        if key not in self._indirect:
            name = self._indirect[key] = symbol(f"x{len(self._indirect)}")
            self.instructions.append(Indirect((value.number, *self._conditions), torch.int64, name, size, family))
        return self._indirect[key]

    def to_dtype(self, value: LoopValue, dtype: torch.dtype) -> LoopValue:
        if self.wide and dtype is torch.float32 and value.dtype in (torch.float16, torch.bfloat16):
            made = self.instructions[value.number]
            if isinstance(made, Convert) and self.instructions[made.arguments[0]].dtype is dtype:
                return LoopValue(made.arguments[0], dtype)
        return value if value.dtype is dtype else self.emit(Convert((value.number,), dtype))

    def reduce(self, kind: str, value: LoopValue, dtype: torch.dtype) -> LoopValue:
        return self.emit(Reduce((value.number,), dtype, kind))

    def scan(self, kind: str, value: LoopValue, dtype: torch.dtype) -> LoopValue:
        return self.emit(Scan((value.number,), dtype, kind))

    def masked(self, condition: LoopValue, body: Callable[[], LoopValue], otherwise: LoopValue) -> LoopValue:
        """The body's value where the condition holds; what the body loads is not read elsewhere."""
        with self._under(condition):
            value = body()
        return self.call("where", (condition, value, otherwise))

    @contextmanager
    def _under(self, condition: LoopValue) -> Iterator[None]:
        outer = self.condition
        if outer is None:
            self.condition = condition.number
        else:
            self.condition = self.call("bitwise_and", (LoopValue(outer, torch.bool), condition)).number
        try:
            yield
        finally:
            self.condition = outer
