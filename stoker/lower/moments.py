"""Variance and mean.

Two passes over a row that stays in a cache: sum, then squared distances. Columns, and rows that do not stay, are walked once, with
the reductions `mean` and `moment` (docs/ir/loop.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import contiguous, product
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import compute_dtype, number, require_supported
from stoker.lower.pieces import Cut
from stoker.lower.reduce import dimensions, reduced
from stoker.lower.registry import Dims, Result, leave_if, lower
from stoker.shape.expr import constant


class _Rows:
    """What one variance is made of: the dimensions, the number of elements, and the type computed in. Eager's kernels for the processor
    compute variances in double precision, and those of norms, which are asked for without a correction, not."""

    def __init__(self, builder: Builder, x: Tensor, dims: Any, correction: Any, *, of_norm: bool = False) -> None:
        require_supported(x.dtype)
        leave_if(not x.dtype.is_floating_point, "the variance of whole numbers is an error that the library words")
        self.builder, self.x, self.over = builder, x, dimensions(x, dims)
        self.others = [d for d in range(len(x.sizes)) if d not in self.over]
        self.sizes, self.reduced_sizes = (tuple(x.sizes[d] for d in those) for those in (self.others, self.over))
        doubled = x.device.type == "cpu" and x.dtype is torch.float32 and not of_norm
        self.wide = torch.float64 if doubled else compute_dtype(x.dtype)
        self.elements = product(self.reduced_sizes)
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
        if self.elements.value is not None and isinstance(correction, (int, float)):
            return number(float(max(self.elements.value - correction, 0)), self.wide)
        rest = ops.sub(number(self.elements, self.wide), number(correction, self.wide))
        return ops.maximum(rest, ops.constant(0.0, self.wide))

    @property
    def once(self) -> bool:
        """Is memory walked once?"""
        elements, target = self.elements.value, self.builder.target(self.x.device)
        if any(self._along(d) for d in self.others):
            return elements is None or elements >= target.one_pass_rows
        return elements is not None and elements * self.x.dtype.itemsize >= target.one_pass_bytes

    def _along(self, dim: int) -> bool:
        """Do neighbours in a dimension lie side by side?"""
        return self.x.strides[dim].value == 1 and self.x.sizes[dim].value != 1

    def squares(self, mean: Tensor) -> Tensor:
        """The sums of squared distances from the mean."""
        full = Result(self.wide, self.x.device, self.x.sizes, contiguous(self.x.sizes))

        def square(index: Index) -> LoopValue:
            apart = ops.sub(self.value(index), mean.at(self.row(index)))
            return ops.mul(apart, apart)

        return self.total("sum", self.builder.compute(full, square, [self.x, mean], 2))

    def moments(self) -> tuple[Tensor, Tensor]:
        """The mean, and the sum of squared distances from it."""
        if self.once:
            return self._in_one_walk()
        mean = self.mean()
        return mean, self.squares(mean)

    def _in_one_walk(self) -> tuple[Tensor, Tensor]:
        """Pieces of long rows first, if there are few: the mean of all is the mean of theirs, which are equally long."""
        made = self.builder.pieces(self.kept, self.sizes, self.reduced_sizes, self.element)
        if made is None or made.ragged is not None:
            return self.total("mean", self.x), self.total("moment", self.x)
        sizes = (*made.counts, *self.sizes)
        part, lead = Result(self.wide, self.x.device, sizes, contiguous(sizes)), len(made.counts)

        def in_piece(kind: str) -> Tensor:
            element = lambda o, i: self.element(o[lead:], made.place(o[:lead], i))  # noqa: E731
            return self.builder.reduce(part, sizes, part.strides, made.lengths, kind, element)

        means, moments = in_piece("mean"), in_piece("moment")
        pieces, length = (float(product(s).value or 0) for s in (made.counts, made.lengths))
        total = self._over_pieces(made, lambda at: means.at(at))
        mean = self.divided(total, lambda: number(pieces, self.wide))

        def distance(at: Index) -> LoopValue:
            apart = ops.sub(means.at(at), mean.at(self._shown(at[lead:])))
            return ops.add(moments.at(at), ops.mul(number(length, self.wide), ops.mul(apart, apart)))

        return mean, self._over_pieces(made, distance)

    def _over_pieces(self, made: Cut, element: Callable[[Index], LoopValue]) -> Tensor:
        strides = tuple(self.kept.strides[d] for d in self.others)
        return self.builder.reduce(self.kept, self.sizes, strides, made.counts, "sum", lambda o, i: element((*i, *o)))

    def element(self, outer: Index, inner: Index) -> Any:
        places = dict(zip([*self.others, *self.over], [*outer, *inner]))
        return self.value(tuple(places[d] for d in range(len(places))))

    def _shown(self, outer: Index) -> Index:
        """Of `kept`."""
        places = dict(zip(self.others, outer))
        return tuple(places.get(d, constant(0)) for d in range(len(self.x.sizes)))

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
    rows = _Rows(builder, x, dims, correction, of_norm=correction == 0)
    mean, squares = rows.moments()
    spread = rows.divided(squares, lambda: rows.less(rows.correction))
    return [rows.result(out[0], spread, keepdim), rows.result(out[1], mean, keepdim)]


@lower("var.correction")
def var(
    builder: Builder, out: Result, x: Tensor, dims: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    rows = _Rows(builder, x, dims, correction)
    spread = rows.divided(rows.moments()[1], lambda: rows.less(rows.correction))
    return rows.result(out, spread, keepdim)
