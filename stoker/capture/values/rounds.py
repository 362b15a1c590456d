"""Loops whose number of rounds changes from call to call.

A `for` loop over `range(n)`, or over the rows of a tensor, becomes part of the graph around it, round after round. Where their number
has been seen to change, or only data tells it, that would be code for each number. Such a loop breaks at its head: CPython advances it, and its body is captured as a resume
function, which takes the iterator as it comes and never asks how much of it is left (tests/differential/test_rounds.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from stoker.capture.values.iterator import IteratorValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Era, Value
from stoker.errors import Break
from stoker.guard.source import Local, Source

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine

PARAMETER = "__rounds_"
"""How a resume function names the iterator of such a loop: its name says what it is."""


def goes_by_rounds(m: Machine, bounds: tuple[Value, ...]) -> bool:
    """Is a range made for a loop of this kind? A subgraph has no place to break, and is unrolled."""
    frame = m.current
    if Era.now or frame.instructions[frame.position].name != "GET_ITER":
        return False
    symbols = [bound.symbol for bound in bounds if isinstance(bound, SymbolicValue)]
    return any(m.sizes.has_varied(symbol) for symbol in symbols)


class SizedRange(Value):
    """`range(n)` on its way to the head of a loop."""

    def __init__(self, bounds: tuple[Value, ...]) -> None:
        self.bounds = bounds

    def python_type(self) -> type:
        return range

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        self.unsupported(f"the operator {operator}")

    def describe(self) -> str:
        numbers = (str(b.symbol) if isinstance(b, SymbolicValue) else str(b.constant()) for b in self.bounds)
        return f"`range({', '.join(numbers)})`"

    def iterator(self, m: Machine) -> Value:
        return RoundsIterator(self, type(iter(range(0))))

    def emit(self, e: Emitter) -> None:
        e.call_function(range, list(self.bounds))


class Rows(Value):
    """The rows of a tensor, as eager's `__iter__` takes them."""

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor

    def python_type(self) -> type:
        return tuple

    def describe(self) -> str:
        return f"the rows of {self.tensor.describe()}"

    def emit(self, e: Emitter) -> None:
        e.call_function(torch.unbind, [self.tensor])


def loop_over(m: Machine, value: Value) -> Value | None:
    """The iterator of a loop of this kind over the rows of a tensor; None for other loops."""
    frame = m.current
    if Era.now or frame.instructions[frame.position].name != "FOR_ITER" or m.overrides.active:
        return None
    if type(value) is not TensorValue or not value.fake.dim():
        return None
    varies = m.sizes.has_varied(value.fake.shape[0])
    return RoundsIterator(Rows(value), type(iter(()))) if varies else None


class RoundsIterator(IteratorValue):
    """Its iterator: what captured code knows of it is how CPython makes it."""

    def __init__(self, over: SizedRange | Rows, kind: type) -> None:
        self.over, self.kind = over, kind

    def next(self, m: Machine) -> Value:
        stop_at_head(self.over.describe())

    def emit(self, e: Emitter) -> None:
        e.call_function(iter, [self.over])


def stop_at_head(loop: str) -> NoReturn:
    raise Break(
        f"a loop over {loop}",
        "how many rounds it has changes from call to call, so that each round is a graph of its own",
        "write it with torch.scan or torch.while_loop, as an operator over the whole length, or for one fixed number of rounds",
    )


def is_left_by_rounds(source: Source | None) -> bool:
    """Is it the iterator of such a loop, as a resume function gets it?"""
    return isinstance(source, Local) and source.name.startswith(PARAMETER)
