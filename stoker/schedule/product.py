"""A matrix product inside a kernel that reads it, as data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

PRODUCT = "p"
"""What a kernel that holds a product calls it in its loads: a dense buffer, of which nothing is in memory."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand in memory: an argument of the kernel, and where its elements lie in it."""

    argument: int
    offset: int
    strides: tuple[int, int, int]
    """Of the batch, of rows, of columns."""


@dataclass(frozen=True, slots=True)
class Product:
    """For each of a batch, rows times columns; sums over the shared size are kept in float32 and rounded once."""

    batch: int
    rows: int
    columns: int
    shared: int
    dtype: torch.dtype
    left: Factor
    right: Factor
    bias: Factor | None = None
    """Added before rounding: one number for each column."""

    @property
    def arguments(self) -> frozenset[int]:
        return frozenset(f.argument for f in (self.left, self.right, self.bias) if f is not None)
