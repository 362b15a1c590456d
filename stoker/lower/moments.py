"""Variance and mean.

Two passes over a row that stays in a cache: sum, then squared distances. Columns, and rows that do not stay, are walked once, with
the reductions `mean` and `moment` (docs/ir/loop.md has the measurements).
"""

from __future__ import annotations

from typing import Any

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import contiguous, product
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype, number, require_supported
from stoker.lower.reduce import reduced
from stoker.lower.registry import Dims, LeftToLibrary, Result, lower
from stoker.lower.view import dimension
from stoker.shape.expr import constant


class _Rows:
    """What one variance is made of: the dimensions, the number of elements, and the type computed in."""

    def __init__(self, builder: Builder, x: Tensor, dims: Any, correction: Any) -> None:
        require_supported(x.dtype)
        if not x.dtype.is_floating_point:
            raise LeftToLibrary("the variance of whole numbers is an error that the library words")
        self.builder, self.x, rank = builder, x, len(x.sizes)
        self.over = sorted({dimension(d, rank) for d in dims}) if dims and rank else list(range(rank))
        self.wide = compute_dtype(x.dtype)
        self.elements = product([x.sizes[d] for d in self.over])
        self.correction = 1 if correction is None else correction
        kept = tuple(constant(1) if d in self.over else s for d, s in enumerate(x.sizes))
        self.kept = Result(self.wide, x.device, kept, contiguous(kept))

    def value(self, index: Index) -> Any:
        return ops.to_dtype(self.x.at(index), self.wide)

    def total(self, kind: str, of: Tensor) -> Tensor:
        return reduced(self.builder, self.kept, of, self.over, True, kind, lambda v: ops.to_dtype(v, self.wide))

    def row(self, index: Index) -> Index:
        return tuple(constant(0) if d in self.over else i for d, i in enumerate(index))

    def divided(self, sums: Tensor, by: Any) -> Tensor:
        return self.builder.compute(self.kept, lambda i: ops.div(sums.at(i), by()), [sums], 4)

    def mean(self) -> Tensor:
        return self.divided(self.total("sum", self.x), lambda: self.less(0))

    def less(self, correction: Any) -> Any:
        """The number of elements less a correction, at least 0: what is divided by."""
        if self.elements.value is not None:
            return number(float(max(self.elements.value - correction, 0)), self.wide)
        rest = ops.sub(number(self.elements, self.wide), number(correction, self.wide))
        return ops.maximum(rest, ops.constant(0.0, self.wide))

    @property
    def once(self) -> bool:
        """Is memory walked once?"""
        elements, target = self.elements.value, self.builder.target(self.x.device)
        if any(self._along(d) for d in range(len(self.x.sizes)) if d not in self.over):
            return elements is None or elements >= target.one_pass_rows
        return elements is not None and elements * self.x.dtype.itemsize >= target.one_pass_bytes

    def _along(self, dim: int) -> bool:
        """Do neighbours in a dimension lie side by side?"""
        return self.x.strides[dim].value == 1 and self.x.sizes[dim].value != 1

    def squares(self, mean: Tensor | None) -> Tensor:
        """The sums of squared distances from the mean; it is found on the way if it is not given."""
        if mean is None:
            return self.total("moment", self.x)
        full = Result(self.wide, self.x.device, self.x.sizes, contiguous(self.x.sizes))

        def square(index: Index) -> LoopValue:
            apart = ops.sub(self.value(index), mean.at(self.row(index)))
            return ops.mul(apart, apart)

        return self.total("sum", self.builder.compute(full, square, [self.x, mean], 2))

    def result(self, out: Result, found: Tensor, keepdim: bool) -> Tensor:
        """A value of each row, in the shape and type of the operator's result."""
        rank = len(self.x.sizes)

        def element(index: Index) -> LoopValue:
            given = iter(index)
            full = index if keepdim else [constant(0) if d in self.over else next(given) for d in range(rank)]
            return ops.to_dtype(found.at(tuple(full)), out.dtype)

        return self.builder.compute(out, element, [found])


@lower("var_mean.correction")
def var_mean(
    builder: Builder, out: list[Result], x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> list[Tensor]:
    rows = _Rows(builder, x, dims, correction)
    mean = rows.total("mean", x) if rows.once else rows.mean()
    spread = rows.divided(rows.squares(None if rows.once else mean), lambda: rows.less(rows.correction))
    return [rows.result(out[0], spread, keepdim), rows.result(out[1], mean, keepdim)]


@lower("var.correction")
def var(
    builder: Builder, out: Result, x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    rows = _Rows(builder, x, dims, correction)
    spread = rows.divided(rows.squares(None if rows.once else rows.mean()), lambda: rows.less(rows.correction))
    return rows.result(out, spread, keepdim)
