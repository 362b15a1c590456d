"""The instructions of a loop body: one frozen class for each kind.

Each has `arguments`, the numbers of the values it uses, and `dtype`, the type of its own; the rest is what it needs besides. Kinds are
told apart by `match`; a stage that handles all of them ends in `assert_never`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch

from stoker.shape.expr import Expr, Symbol

Arguments: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Instruction:
    arguments: Arguments
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Load(_Instruction):
    """An element of a buffer. Argument, if any: a condition without which nothing is read and the value is 0."""

    buffer: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Store(_Instruction):
    """Argument: the value. With combine None, the first to write there; "set" overwrites what an earlier node wrote, "add", "mul",
    "max" and "min" combine with it, and iterations may meet in one place."""

    buffer: str
    index: Expr
    combine: str | None


@dataclass(frozen=True, slots=True)
class Number(_Instruction):
    """A constant. 0.0 == -0.0 and 1 == True, but they are different constants: equal ones are written alike."""

    value: bool | int | float = field(compare=False)
    words: str

    @staticmethod
    def of(value: bool | int | float, dtype: torch.dtype) -> Number:
        return Number((), dtype, value, repr(value))


@dataclass(frozen=True, slots=True)
class Index(_Instruction):
    """The value of an index expression."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Indirect(_Instruction):
    """Names an integer value, wrapped if negative, for use in indices. It must be in range wherever the second argument, a
    condition, holds; the family says what is raised otherwise (`stoker.errors.OUTSIDE`)."""

    name: Symbol
    size: Expr
    family: str


@dataclass(frozen=True, slots=True)
class Reduce(_Instruction):
    """Over the inner loops, after which the value exists."""

    kind: str


@dataclass(frozen=True, slots=True)
class Scan(_Instruction):
    """The inner loops run in order, and the value is that of all iterations up to this one."""

    kind: str


@dataclass(frozen=True, slots=True)
class Convert(_Instruction):
    """The argument in another type."""


@dataclass(frozen=True, slots=True)
class Apply(_Instruction):
    """An elementwise operation of `stoker.loop.op.ELEMENTWISE`."""

    operation: str


LoopInstruction: TypeAlias = Load | Store | Number | Index | Indirect | Reduce | Scan | Convert | Apply


def index_expressions(i: LoopInstruction) -> tuple[Expr, ...]:
    """The expressions inside an instruction."""
    match i:
        case Load() | Store():
            return (i.index,)
        case Indirect():
            return (i.size,)
        case Index():
            return (i.expr,)
    return ()


def with_expressions(i: LoopInstruction, change: Callable[[Expr], Expr]) -> LoopInstruction:
    """The instruction with its expressions changed; itself where they stay as they are."""
    match i:
        case Load() | Store():
            changed = change(i.index)
            return i if changed is i.index else replace(i, index=changed)
        case Indirect():
            changed = change(i.size)
            return i if changed is i.size else replace(i, size=changed)
        case Index():
            changed = change(i.expr)
            return i if changed is i.expr else replace(i, expr=changed)
    return i
