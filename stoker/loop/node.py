"""The nodes of a lowered program: loops that compute, and calls of library operators.

A program is a list of nodes in an order that runs. Each node writes buffers; a buffer has one writer, except one that was
made for concatenation, whose parts have one each, and one that later nodes combine with, whose writers keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stoker.loop.index import Dimensions
from stoker.loop.instruction import Load, LoopInstruction, Store
from stoker.loop.layout import Layout
from stoker.loop.view import Stored
from stoker.nest import leaves
from stoker.shape.expr import Expr, Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Loops:
    """A loop nest. With `inner` dimensions, its body reduces over them (or walks them in order, for a scan)."""

    writes: tuple[str, ...]
    outer: Dimensions
    inner: Dimensions
    body: tuple[LoopInstruction, ...]
    device: torch.device
    origins: tuple[str, ...] = ()
    """The operators it came from."""


@dataclass(frozen=True, slots=True, eq=False)
class Extern:
    """A call of an ATen operator. Arguments hold `Stored` and `Expr` where the call has tensors and sizes."""

    writes: tuple[str | None, ...]
    operator: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    several: bool
    """Does the operator return a tuple?"""
    aliases: bool = False
    """May a result share memory with an argument?"""
    ordered: bool = False
    """Does it draw random numbers, or may it remember calls? Such calls keep their order."""

    @property
    def origin(self) -> str:
        return str(self.operator)


Node = Loops | Extern


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Where to read a symbol when the program is called: the size of an input's dimension or its stride, or an integer input."""

    argument: int
    dimension: int | None
    stride: bool = False

    def read(self, inputs: Sequence[Any]) -> int:
        given = inputs[self.argument]
        if self.dimension is None:
            return int(given)
        return int(given.stride(self.dimension) if self.stride else given.shape[self.dimension])


@dataclass(slots=True)
class Program:
    """A lowered graph. Inputs and outputs in the graph's order; None marks an input that is a number."""

    inputs: list[str | None] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    blank: set[str] = field(default_factory=set)
    """Buffers that nobody writes: what they hold is not promised."""
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Stored | Expr | None | Any] = field(default_factory=list)
    homes: dict[str, str] = field(default_factory=dict)
    """Results, and the inputs that they become the content of when the program has run."""
    symbols: dict[Symbol, SymbolSource] = field(default_factory=dict)
    aligned: set[str] = field(default_factory=set)
    """Inputs that must begin at a multiple of 16 bytes for the program to do what eager does."""
    lowered: list[str] = field(default_factory=list)
    """Operators that became loops or views, one entry for each node of the graph."""
    declined: list[tuple[str, str]] = field(default_factory=list)
    """Operators left to the library, and why."""


def tensors_in(value: Any) -> list[Stored]:
    """The stored tensors inside an argument."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, Stored)]


def reads(node: Node) -> tuple[str, ...]:
    """The buffers a node reads, each once. To combine with what is in memory is to read it."""
    if isinstance(node, Extern):
        names = [t.buffer for t in tensors_in((node.arguments, node.keywords))]
    else:
        names = [i.buffer for i in node.body if isinstance(i, Load) or (isinstance(i, Store) and i.combine)]
    return tuple(dict.fromkeys(names))
