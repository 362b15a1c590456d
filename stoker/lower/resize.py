"""Upsampling: which elements of the image an element of the result is made of, and in what shares.

Places are fractions of sizes. Which elements lie around one is found in whole numbers: floor(a * image / result) is an index like
any other, so rows and channels vectorize. How far it lies from them is rounded as eager rounds it. Interpolation is continuous, so
that where the two disagree on the element the result is the same up to rounding; the nearest element is not, and there each choice
is compared with eager's. Gradients are library calls: see `stoker.lower.extern`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import contiguous
from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.conv import is_channels_last, laid_like
from stoker.lower.operand import compute_dtype, number, require_supported
from stoker.lower.registry import LeftToLibrary, Numbers, Result, leave_if, lower
from stoker.shape.expr import Expr, constant, maximum, minimum


def _sources(size: int, wanted: int, scale: float | None, exact: bool) -> list[int]:
    """For each element along one dimension of the result: eager's choice, in eager's arithmetic."""
    ratio = torch.tensor(1.0 / scale if scale else size / wanted, dtype=torch.float32)
    places = torch.arange(wanted, dtype=torch.float32)
    found = (places + 0.5 if exact else places) * ratio
    return [min(int(i), size - 1) for i in found.floor().tolist()]


def _choice(size: Expr, wanted: Expr, scale: float | None, exact: bool) -> Callable[[Expr], Expr]:
    """The choice as arithmetic on whole numbers."""
    if size.value is None or wanted.value is None:
        raise LeftToLibrary("the ratio depends on symbols")
    n, m = size.value, wanted.value
    found = _sources(n, m, scale, exact)
    if found == [i * n // m for i in range(m)]:
        return lambda i: (i * n) // m
    if found == [(2 * i + 1) * n // (2 * m) for i in range(m)]:
        return lambda i: ((2 * i + 1) * n) // (2 * m)
    raise LeftToLibrary("a ratio that rounds")


def _nearest(builder: Builder, out: Result, x: Tensor, size: Numbers, *scales: Any, exact: bool) -> Tensor:
    require_supported(x.dtype)
    if not x.dtype.is_floating_point and x.dtype is not torch.uint8:
        raise LeftToLibrary("eager refuses these numbers: the library raises the right error")
    _nonempty(x, out)
    given = [*scales, *[None] * (len(out.sizes) - 2)]
    choices = [_choice(*pair, given[d], exact) for d, pair in enumerate(zip(x.sizes[2:], out.sizes[2:]))]

    def element(at: Index) -> LoopValue:
        return x.at((*at[:2], *(choose(i) for choose, i in zip(choices, at[2:]))))

    return builder.compute(laid_like(builder, out, x), element, [x], cost=3)


def _nonempty(x: Tensor, out: Result) -> None:
    leave_if(any(s.value == 0 for s in (*x.sizes, *out.sizes)), "an empty image")


@dataclass(frozen=True, slots=True)
class Line:
    """Places along one dimension: that of element i of the result is (i * step + start) / whole, in elements of the image.

    Eager computes them as i * ratio, or (i + 0.5) * ratio - 0.5 where elements have an extent (`centred`).
    """

    image: Expr
    step: Expr
    start: Expr
    whole: Expr
    centred: bool

    def place(self, i: Expr) -> Expr:
        return i * self.step + self.start

    def rounded(self, i: Expr, dtype: torch.dtype) -> Any:
        """The place as eager rounds it."""
        ratio, at = ops.div(number(self.step, dtype), number(self.whole, dtype)), number(i, dtype)
        if not self.centred:
            return ops.mul(at, ratio)
        half = number(0.5, dtype)
        return ops.sub(ops.mul(ops.add(at, half), ratio), half)


def _line(size: Expr, wanted: Expr, corners: bool, scale: float | None) -> Line:
    zero, one = constant(0), constant(1)
    if corners:
        step, whole = (zero, one) if wanted.value == 1 else (size - 1, wanted - 1)
        return Line(size, step, zero, whole, False)
    leave_if(scale is not None and not _agrees(size, wanted, scale), "a factor that is not the ratio of the sizes")
    return Line(size, 2 * size, size - wanted, 2 * wanted, True)


def _agrees(size: Expr, wanted: Expr, scale: float) -> bool:
    """Is the result that factor larger than the image, exactly?"""
    if size.value is not None and wanted.value is not None:
        return bool(size.value * scale == wanted.value)
    return scale == int(scale) and wanted is size * int(scale)


def _two(line: Line, i: Expr, dtype: torch.dtype) -> list[tuple[Expr, Any]]:
    """The two elements around a place, and their shares."""
    first = maximum(line.place(i), constant(0)) // line.whole
    after = ops.sub(ops.maximum(line.rounded(i, dtype), number(0, dtype)), number(first, dtype))
    return [(first, ops.sub(number(1, dtype), after)), (minimum(first + 1, line.image - 1), after)]


_BEND = -0.75
"""Eager's parameter of cubic interpolation."""


def _four(line: Line, i: Expr, dtype: torch.dtype) -> list[tuple[Expr, Any]]:
    """The four elements around a place, those at the border repeated, and their shares."""
    second = (line.place(i) + line.whole) // line.whole - 1  # at least one element before the image, and not negative
    after = ops.sub(line.rounded(i, dtype), number(second, dtype))
    before = ops.sub(number(1, dtype), after)
    shares = [_outer(after), _inner(after), _inner(before), _outer(before)]
    last = line.image - 1
    return [(minimum(maximum(second - 1 + n, constant(0)), last), share) for n, share in enumerate(shares)]


def _polynomial(x: Any, *coefficients: float) -> Any:
    total = number(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        total = ops.add(ops.mul(total, x), number(coefficient, x.dtype))
    return total


def _inner(x: LoopValue) -> LoopValue:
    """The share of an element at distance x of at most 1."""
    return _polynomial(x, _BEND + 2, -(_BEND + 3), 0, 1)


def _outer(x: LoopValue) -> LoopValue:
    """The share of an element at distance 1 + x."""
    return _polynomial(ops.add(x, number(1, x.dtype)), _BEND, -5 * _BEND, 8 * _BEND, -4 * _BEND)


Taps = Callable[[Line, Expr, torch.dtype], list[tuple[Expr, Any]]]


def _interpolation(taps: Taps, each: int) -> Callable[..., Tensor]:
    def lowering(builder: Builder, out: Result, x: Tensor, size: Numbers, corners: bool, *scales: Any) -> Tensor:
        require_supported(x.dtype)
        _nonempty(x, out)
        leave_if(not x.dtype.is_floating_point, "bytes are interpolated with weights that are whole numbers")
        rank, dtype = len(out.sizes) - 2, compute_dtype(out.dtype)
        given = [*scales, *[None] * rank]
        lines = [_line(n, m, corners, given[d]) for d, (n, m) in enumerate(zip(x.sizes[2:], out.sizes[2:]))]
        image: Tensor = builder.store(x)
        if rank > 1 and not is_channels_last(x):
            image = _along_rows(builder, out, image, lines.pop(), taps)

        def element(at: Index) -> LoopValue:
            found = [taps(line, i, dtype) for line, i in zip(lines, at[2:])]
            return ops.to_dtype(total(at[:2], found, at[2 + len(lines) :]), out.dtype)

        def total(place: Index, rest: list[list[tuple[Expr, Any]]], end: Index) -> Any:
            """The sum over the dimensions that are left, nested as eager's is."""
            if not rest:
                return ops.to_dtype(image.at((*place, *end)), dtype)
            parts = [ops.mul(share, total((*place, i), rest[1:], end)) for i, share in rest[0]]
            return list(itertools.accumulate(parts, lambda a, b: ops.add(a, b)))[-1]

        return builder.compute(laid_like(builder, out, x), element, [image], cost=4 * each ** len(lines))

    return lowering


def _along_rows(builder: Builder, out: Result, image: Tensor, line: Line, taps: Taps) -> Tensor:
    """The image interpolated along its rows alone, stored: what is left vectorizes along them."""
    sizes, dtype = (*image.sizes[:-1], out.sizes[-1]), compute_dtype(out.dtype)

    def element(at: Index) -> LoopValue:
        found = [ops.mul(s, ops.to_dtype(image.at((*at[:-1], i)), dtype)) for i, s in taps(line, at[-1], dtype)]
        return list(itertools.accumulate(found, lambda a, b: ops.add(a, b)))[-1]

    result = Result(dtype, out.device, sizes, contiguous(sizes))
    return builder.store(builder.compute(result, element, [image], cost=8))


for _rank, _name in (("1d", "linear"), ("2d", "bilinear"), ("3d", "trilinear")):
    lower(f"upsample_nearest{_rank}.default", exact=False)(_nearest)
    lower(f"_upsample_nearest_exact{_rank}.default", exact=True)(_nearest)
    if _rank != "1d":
        lower(f"upsample_{_name}{_rank}.default")(_interpolation(_two, 2))
lower("upsample_bicubic2d.default")(_interpolation(_four, 4))
