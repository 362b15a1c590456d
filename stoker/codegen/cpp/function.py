"""What the parts of the C++ generator may ask of the function that is being written."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import torch

from stoker.codegen.cpp.shape import Shape
from stoker.codegen.cpp.spread import Copies
from stoker.codegen.cpp.tiles import Tiles
from stoker.codegen.writer import Writer
from stoker.loop.index import Dimension
from stoker.schedule.kernel import Kernel, Phase
from stoker.shape.expr import Expr


class FunctionText(Protocol):
    """One function: its kernel, its text so far, and how loops and lines are written."""

    kernel: Kernel
    tiles: Tiles
    out: Writer
    shape: Shape
    types: dict[int, torch.dtype]
    """Of each value."""
    scan_place: str
    """Which element of the arrays that a scan keeps, if it keeps arrays."""

    copies: tuple[Copies, ...]
    """What is copied from row to row, not stored by its lines."""

    def expr(self, expr: Expr) -> str: ...

    def extent(self, loop: Dimension) -> str:
        """How often a loop runs."""

    def around(self, loop: Dimension) -> str:
        """How often a loop runs around another one that is vectors."""

    def head(self, loop: Dimension, start: str = "0", end: str | None = None) -> str:
        """The head of a loop."""

    def loops(self, dimensions: tuple[Dimension, ...], *, around: bool = False) -> AbstractContextManager[None]:
        """Nested loops, in order. They may stand around another one that is vectors."""

    def shared(self, dimensions: tuple[Dimension, ...]) -> AbstractContextManager[None]:
        """Loops in parallel."""

    def parallel(self, kind: str, clauses: str = "") -> None:
        """Share the loop that follows among threads, if there is work for them."""

    def copy_rows(self, last: Dimension, start: str, end: str) -> None:
        """Copy what the last loop has written between two of its positions, where it goes to several places."""

    def simd(self, possible: bool, clauses: str = "") -> None:
        """Run the loop that follows as vectors."""

    def vectorizable(self, phase: Phase) -> bool: ...

    def lines(self, phase: Phase, strip: str = "", accumulator: str = "acc") -> None:
        """The straight-line code of a phase."""
