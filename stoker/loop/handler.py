"""`ops`: the vocabulary of loop bodies, given a meaning by the handler in force.

A body is a Python function that calls `ops.load`, `ops.add`, ... . What those calls do is decided by the handler, which records
instructions (`stoker.loop.body`). This is the one dynamically scoped variable of the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from stoker.loop.body import LoopValue, Recorder
from stoker.shape.expr import Expr, Symbol

_handler: ContextVar[Recorder] = ContextVar("stoker loop handler")


class _Ops:
    """What has a kind of instruction of its own, by name; every other name is an elementwise operation."""

    def load(self, buffer: str, index: Expr, dtype: torch.dtype) -> LoopValue:
        return _handler.get().load(buffer, index, dtype)

    def store(self, buffer: str, index: Expr, value: LoopValue, combine: str | None = None) -> None:
        _handler.get().store(buffer, index, value, combine)

    def constant(self, number: bool | int | float, dtype: torch.dtype) -> LoopValue:
        return _handler.get().constant(number, dtype)

    def index(self, expr: Expr, dtype: torch.dtype) -> LoopValue:
        return _handler.get().index(expr, dtype)

    def indirect(self, value: LoopValue, size: Expr, family: str = "index") -> Symbol:
        return _handler.get().indirect(value, size, family)

    def to_dtype(self, value: LoopValue, dtype: torch.dtype) -> LoopValue:
        return _handler.get().to_dtype(value, dtype)

    def reduce(self, kind: str, value: LoopValue, dtype: torch.dtype) -> LoopValue:
        return _handler.get().reduce(kind, value, dtype)

    def scan(self, kind: str, value: LoopValue, dtype: torch.dtype) -> LoopValue:
        return _handler.get().scan(kind, value, dtype)

    def masked(self, condition: LoopValue, body: Callable[[], LoopValue], otherwise: LoopValue) -> LoopValue:
        return _handler.get().masked(condition, body, otherwise)

    def __getattr__(self, name: str) -> Callable[..., LoopValue]:
        return lambda *arguments: _handler.get().call(name, arguments)


ops = _Ops()


def handler() -> Recorder:
    """The handler in force."""
    return _handler.get()


@contextmanager
def using(new: Recorder) -> Iterator[Recorder]:
    """Give `ops` this meaning inside the block."""
    token = _handler.set(new)
    try:
        yield new
    finally:
        _handler.reset(token)
