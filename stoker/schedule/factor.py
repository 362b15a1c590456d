"""Which matrix product a library call computes.

In:  a call, what its result is like, and the buffers of the kernel that is to compute it.
Out: a `Product` whose factors are among these buffers, or added to them; None where a size is not known, or the call is no product of a
     type that the units for matrices multiply.

A convolution with channels fastest is the product of its windows with its weights; where a window is one point of the image, next to the
one before, that is a plain matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from stoker.loop.layout import Layout, contiguous
from stoker.loop.node import tensors_in
from stoker.loop.view import Stored
from stoker.schedule.product import Factor, Pair, Product, Windows
from stoker.schedule.step import Library
from stoker.shape.expr import Expr

aten = torch.ops.aten
DTYPES = frozenset({torch.float16, torch.bfloat16})
"""Types whose products the units for matrices compute, with sums in float32."""
LARGEST = 1 << 31

Place = Callable[[Stored], int]
"""The number of the argument that a tensor lies in."""


def multiplies(library: Library) -> bool:
    return library.operator in _FORMS


def product_of(library: Library, layout: Layout, buffers: Sequence[str]) -> tuple[Product, list[str]] | None:
    """The product of a call, and the buffers with its operands."""
    if not _is_plain(library, layout):
        return None
    found = list(buffers)

    def place(tensor: Stored) -> int:
        if tensor.buffer not in found:
            found.append(tensor.buffer)
        return found.index(tensor.buffer)

    product = _FORMS[library.operator](library.arguments, layout, place)
    return None if product is None else (product, found)


def _is_plain(library: Library, layout: Layout) -> bool:
    """Are all sizes known and not 0, and all operands of a type that is multiplied fast?"""
    tensors = tensors_in(library.arguments)
    known = [e for t in tensors for e in (*t.sizes, *t.strides, t.offset)]
    if layout.dtype not in DTYPES or library.keywords:
        return False
    if any(e.value is None for e in known) or any(t.dtype is not layout.dtype for t in tensors):
        return False
    if not all(size.value for t in tensors for size in t.sizes):
        return False
    reaches = [Layout(t.dtype, t.device, t.sizes, t.strides).reach + t.offset for t in tensors]
    return all((reach.value or LARGEST) < LARGEST for reach in (*reaches, layout.reach))


def _numbers(values: Sequence[Expr]) -> list[int]:
    return [v.value or 0 for v in values]


def _factor(tensor: Stored, place: Place) -> Factor:
    batch, rows, columns = [0] * (3 - len(tensor.strides)) + _numbers(tensor.strides)
    return Factor(place(tensor), tensor.offset.value or 0, (batch, rows, columns))


def _matrices(arguments: Sequence[Any], layout: Layout, place: Place) -> Product | None:
    left, right = arguments
    if layout.strides != contiguous(layout.sizes):
        return None
    batch, rows, shared = [1] * (3 - len(left.sizes)) + _numbers(left.sizes)
    columns = right.sizes[-1].value
    return Product(batch, rows, columns, shared, layout.dtype, _factor(left, place), _factor(right, place))


def _with_bias(arguments: Sequence[Any], layout: Layout, place: Place) -> Product | None:
    bias, *factors = arguments
    if len(bias.sizes) != 1 or len(factors) != 2:
        return None
    added, product = _factor(bias, place), _matrices(factors, layout, place)
    return None if product is None else replace(product, bias=added)


def _convolution(arguments: Sequence[Any], layout: Layout, place: Place) -> Product | None:
    """Rows are the places of all images, columns the channels of the result: of one group, if there are several."""
    image, weight, bias, step, padding, dilation, transposed, _, groups = arguments
    given = [*step, *padding, *dilation, groups]
    if transposed or len(image.sizes) != 4 or not all(isinstance(n, int) for n in given):
        return None
    if groups > 1 and weight.sizes[1].value == 1:
        return None  # one channel is no matrix
    count, made, high, wide = _numbers(layout.sizes)
    if _numbers(layout.strides) != [high * wide * made, 1, wide * made, made] or image.strides[1].value != 1:
        return None
    left, columns = _windows(image, weight, (high, wide), step, padding, dilation, place), made // groups
    right_out, right_channel, _, _ = _numbers(weight.strides)
    right = Factor(place(weight), weight.offset.value or 0, (columns * right_out, right_channel, right_out))
    shared = left.channels * left.kernel[0] * left.kernel[1]
    added = None if bias is None else _of_columns(bias, columns, place)
    rows = _flat(left, count) if groups == 1 else replace(left, group=left.channels * left.channel)
    return Product(groups, count * high * wide, columns, shared, layout.dtype, rows, right, added, groups > 1)


def _of_columns(bias: Stored, columns: int, place: Place) -> Factor:
    (stride,) = _numbers(bias.strides)
    return Factor(place(bias), bias.offset.value or 0, (columns * stride, 0, stride))


def _windows(
    image: Stored, weight: Stored, places: Pair, step: Any, padding: Any, dilation: Any, place: Place
) -> Windows:
    batch, channel, *strides = _numbers(image.strides)
    size, kernel, points = (_numbers(numbers[2:]) for numbers in (image.sizes, weight.sizes, weight.strides))
    return Windows(
        place(image), image.offset.value or 0, batch, channel, _pair(strides), _pair(size), places, _pair(kernel),
        _pair(step), _pair(padding), _pair(dilation), weight.sizes[1].value or 0, _pair(points),
    )  # fmt: skip


def _flat(windows: Windows, count: int) -> Factor | Windows:
    """A plain matrix, where each window is a point and the next one lies next to it."""
    w = windows
    dense = w.strides[0] == w.size[1] * w.strides[1] and (count == 1 or w.image == w.size[0] * w.strides[0])
    if w.size != w.places or w.kernel != (1, 1) or not dense:
        return windows
    return Factor(w.argument, w.offset, (0, w.strides[1], w.channel))


def _pair(numbers: Sequence[int]) -> Pair:
    down, across = numbers
    return down, across


_FORMS: dict[Any, Callable[[Sequence[Any], Layout, Place], Product | None]] = {
    aten.mm.default: _matrices,
    aten.bmm.default: _matrices,
    aten.addmm.default: _with_bias,
    aten.convolution.default: _convolution,
}
