"""A matrix product inside a kernel that reads it, as data. A convolution is one, too: the rows of its left factor are windows of images."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stoker.loop.index import Dimensions
from stoker.loop.instruction import Load, LoopInstruction
from stoker.shape.expr import Expr

PRODUCT = "p"
"""What a kernel that holds a product calls it in its loads: a dense buffer, of which nothing is in memory."""

Pair = tuple[int, int]
"""Along the height and the width of an image."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand in memory: an argument of the kernel, and where its elements lie in it."""

    argument: int
    offset: int
    strides: tuple[int, int, int]
    """Of the batch, of rows, of columns."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A left factor with a row for each place of a kernel over images: what the kernel covers there, point by point of the kernel, channel by
    channel; 0 where it reaches past the image. The right factor has its rows in the same order: by channels, and for each
    point of the kernel at another place."""

    argument: int
    offset: int
    image: int
    """The stride from image to image."""
    channel: int
    """The stride from channel to channel."""
    strides: Pair
    size: Pair
    places: Pair
    kernel: Pair
    step: Pair
    padding: Pair
    dilation: Pair
    channels: int
    right_strides: Pair
    """From point to point of the kernel, in the right factor."""
    group: int = 0
    """The stride from the channels of one of the batch to those of the next: a convolution in groups is a batch of products."""


@dataclass(frozen=True, slots=True)
class Prologue:
    """An operand that is computed where it is read, tile by tile, and never in memory: the lines of a kernel over the operand's rows and columns
    (`stoker.schedule.prologue`)."""

    loops: Dimensions
    """The batch, if that is more than one, rows, and columns."""
    lines: tuple[tuple[int, LoopInstruction], ...]
    """Their numbers are none of the kernel's own."""
    value: int

    @property
    def arguments(self) -> frozenset[int]:
        return frozenset(int(i.buffer[1:]) for _, i in self.lines if isinstance(i, Load))


@dataclass(frozen=True, slots=True)
class Product:
    """For each of a batch, rows times columns; sums over the shared size are kept in float32 and rounded once."""

    batch: int
    rows: int
    columns: int
    shared: int
    dtype: torch.dtype
    left: Factor | Windows | Prologue
    right: Factor | Prologue
    bias: Factor | None = None
    """Added before rounding: one number for each column."""
    side_by_side: bool = False
    """Do the columns of all of the batch lie next to each other, row by row? Otherwise there is one matrix after the other."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the loops of a kernel that computes it."""
        return (self.rows, self.columns) if self.batch == 1 else (self.batch, self.rows, self.columns)

    def place(self, *loops: Expr) -> Expr:
        """Where the element of a turn of these loops lies in the result."""
        *batch, row, column = loops
        if self.side_by_side:
            return row * (self.batch * self.columns) + batch[0] * self.columns + column
        return sum((b * (self.rows * self.columns) for b in batch), row * self.columns + column)

    @property
    def arguments(self) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for operand in (self.left, self.right, self.bias):
            if operand is not None:
                found |= operand.arguments if isinstance(operand, Prologue) else {operand.argument}
        return found

    @property
    def longest_step(self) -> int:
        """How far it is to go along the shared size at once, at most."""
        return self.left.channels if isinstance(self.left, Windows) else self.shared
