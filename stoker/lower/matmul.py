"""Matrix products: library calls, given memory whose rows begin where fast kernels want them.

A product whose rows are no multiple of the target's alignment (a vocabulary of 30,522 words in half precision) runs through a slow
kernel. Its weight is copied into rows enough to fill the last multiple, which costs little beside the product; the result has
padded rows, of which readers see the part they want. What the program returns has its own rows: as many columns as are aligned are made piece
by piece in aligned memory, which lies in parts of the result that are made later (that of a small result is its own), and copied; the few others
are a product apart. Operands that are written for the product get padded rows at once. Gradients of such a product sum over the odd length, or
have as many rows: rows are filled up with zeros, and all of them are taken.

A product of one row takes as long as its weight is read, once: where the target asks for it, that is a loop, which whatever follows can be
part of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from stoker.loop import view
from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import Layout, contiguous
from stoker.loop.view import Index, Stored, Tensor
from stoker.lower.builder import Builder
from stoker.lower.move import pad
from stoker.lower.registry import LeftToLibrary, Result, find, leave_if, lower
from stoker.shape.expr import constant

LARGE = 1 << 22
"""Elements of a result from which padding is worth its copies."""
WIDE = 128
"""Rows and columns of a result from which filling up what is summed over is worth copying the operands."""
FEW = 8
"""Aligned groups of columns below which a result that is returned is not made apart from the rest of its columns."""
PIECE_ROWS = (128, 32)
"""Rows of a part of a result are a multiple of the first that fits: what a fast kernel makes at once, or makes without much waste."""
WHOLE_BYTES = 1 << 26
"""A result up to this is made in one part, in memory of its own: parts of few rows are slow."""
LAST_BYTES = 1 << 22
"""The last part of a larger one, which has no later rows to lie in, may have this."""
ROOM = 64
"""Elements that may be lost where a part begins, because its memory is aligned."""
SHORTEST = 64
"""Terms of a sum from which a program of its own is worth it."""
PRODUCT = "a matrix product"
_HALF = (torch.float16, torch.bfloat16)


@lower("mm.default", calls=True)
def mm(builder: Builder, out: Result, a: Tensor, b: Tensor) -> Tensor:
    return _product(builder, out, None, a, b)


@lower("addmm.default", calls=True)
def addmm(builder: Builder, out: Result, bias: Tensor, a: Tensor, b: Tensor, **scales: Any) -> Tensor:
    leave_if(scales or len(bias.sizes) != 1, PRODUCT)
    return _product(builder, out, bias, a, b)


def _call(builder: Builder, out: Result, bias: Tensor | None, a: Tensor, b: Tensor) -> Stored:
    name, given = ("mm.default", [a, b]) if bias is None else ("addmm.default", [bias, a, b])
    return _stored(builder.call(find(name), given, {}, out))


def _product(builder: Builder, out: Result, bias: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    target = builder.target(out.device)
    if target.rows_in_loops and out.sizes[0].value == 1 and _walks_rows(out, a, b):
        return _row(builder, out, bias, a, b)
    step = target.matmul_alignment_bytes // out.dtype.itemsize
    rows, columns, shared = (size.value for size in (*out.sizes, a.sizes[1]))
    if step <= 1 or out.dtype not in _HALF or rows is None or columns is None or shared is None:
        raise LeftToLibrary(PRODUCT)
    pays = min(rows, columns) >= WIDE and max(rows, columns) * shared >= LARGE
    if pays and shared % step and (a.strides[1].value == 1 or b.strides[0].value == 1):
        operands = [_filled(builder, a, step), view.permute(_filled(builder, view.permute(b, (1, 0)), step), (1, 0))]
        return _call(builder, out, bias, *operands)
    if pays and rows % step and a.strides[0].value == 1 and columns % step == 0:
        return _in_more_rows(builder, out, bias, view.permute(a, (1, 0)), b, step)
    padded = _up(columns, step)
    wide = padded != columns and rows * columns >= LARGE and shared % step == 0
    operands = [a if wide else _with_rows(builder, a, step), b if wide else _with_rows(builder, b, step)]
    if not wide:
        leave_if(operands == [a, b], PRODUCT)
        return _call(builder, out, bias, *operands)
    leave_if(builder.usage.returned and columns < FEW * step, PRODUCT)
    if builder.usage.returned and b.strides[0].value == 1 and (b.strides[1].value or 1) % step == 0:
        return _in_pieces(builder, out, bias, a, b, columns - columns % step)
    weight = _taller(builder, view.permute(b, (1, 0)), padded)
    if builder.usage.returned:
        return _in_pieces(builder, out, bias, a, view.permute(weight, (1, 0)), columns - columns % step)
    lead = None if bias is None else _taller(builder, bias, padded)
    sizes = (constant(rows), constant(padded))
    full = Result(out.dtype, out.device, sizes, contiguous(sizes))
    made = _call(builder, full, lead, a, view.permute(weight, (1, 0)))
    return view.narrow(made, 1, constant(0), constant(columns), constant(1))


def _in_more_rows(builder: Builder, out: Result, bias: Tensor | None, turned: Tensor, b: Tensor, step: int) -> Tensor:
    """The product of an operand that lies by columns: of all columns of its memory, or, if it is returned, of most of them and then the rest."""
    memory, rows = view.permute(_filled(builder, turned, step), (1, 0)), out.sizes[0].value or 0

    def make(start: int, count: int) -> Tensor:
        sizes = (constant(count), out.sizes[1])
        part = Result(out.dtype, out.device, sizes, contiguous(sizes))
        return _call(builder, part, bias, _span(memory, 0, start, count), b)

    if not builder.usage.returned:
        return _span(make(0, _up(rows, step)), 0, 0, rows)
    whole = builder.new_buffer(out)
    for start, count in ((0, rows - rows % step), (rows - rows % step, rows % step)):
        builder.write(make(start, count), _stored(_span(whole, 0, start, count)))
    return whole


def _walks_rows(out: Result, a: Tensor, b: Tensor) -> bool:
    """Does a sum of the product lie in memory side by side, and is there enough of it for a program?"""
    shared = a.sizes[1].value
    enough = shared is not None and shared >= SHORTEST
    return enough and out.dtype in (*_HALF, torch.float32) and b.strides[0].value == 1


def _row(builder: Builder, out: Result, bias: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """One row of sums, each added up in float32 and rounded at its end."""
    a, b = builder.store(a), builder.store(b)

    def element(outer: Index, inner: Index) -> LoopValue:
        (row, column), (place,) = outer, inner
        return ops.mul(*(ops.to_dtype(v, torch.float32) for v in (a.at((row, place)), b.at((place, column)))))

    wide = out if bias is None else Result(torch.float32, out.device, out.sizes, contiguous(out.sizes))
    sums = builder.reduce(wide, wide.sizes, wide.strides, (a.sizes[1],), "sum", element)
    if bias is None:
        return sums
    added = bias

    def with_bias(index: Index) -> LoopValue:
        total = ops.add(sums.at(index), ops.to_dtype(added.at(index[1:]), torch.float32))
        return ops.to_dtype(total, out.dtype)

    return builder.compute(out, with_bias, [sums, bias])


def _in_pieces(builder: Builder, out: Result, bias: Tensor | None, a: Tensor, b: Tensor, aligned: int) -> Stored:
    """The result in dense memory: as many columns as are aligned, some rows after the other, and the few that are left."""
    whole = builder.new_buffer(out)
    a, b, rows, columns = builder.store(a), builder.store(b), out.sizes[0].value or 0, out.sizes[1].value or 0

    def make(start: int, count: int, first: int, width: int) -> None:
        sizes = (constant(count), constant(width))
        part = Result(out.dtype, out.device, sizes, contiguous(sizes))
        lead = None if bias is None else _span(bias, 0, first, width)
        made = _call(builder, part, lead, _span(a, 0, start, count), _span(b, 1, first, width))
        builder.write(made, _stored(_span(_span(whole, 0, start, count), 1, first, width)))

    start = 0
    for count in _heights(rows, columns, aligned, out.dtype.itemsize):
        make(start, count, 0, aligned)
        start += count
    make(0, rows, aligned, columns - aligned)
    return whole


def _heights(rows: int, columns: int, aligned: int, item_bytes: int) -> Iterator[int]:
    """Rows of each part. Its aligned memory fits behind the part, where the parts after it will be (`stoker.schedule.lodge`): it has half of the
    rows that are left."""
    last = rows if rows * aligned * item_bytes <= WHOLE_BYTES else max(1, LAST_BYTES // (aligned * item_bytes))
    while rows > last:
        most = (rows * columns - ROOM) // (columns + aligned)
        step = next((step for step in PIECE_ROWS if most >= step), 1)
        yield most // step * step
        rows -= most // step * step
    yield rows


def _span(tensor: Tensor, dim: int, start: int, count: int) -> Tensor:
    return view.narrow(tensor, dim, constant(start), constant(count), constant(1))


def _stored(tensor: Tensor) -> Stored:
    assert isinstance(tensor, Stored)
    return tensor


def _taller(builder: Builder, tensor: Tensor, size: int) -> Stored:
    """The tensor in memory with room for more of its first dimension; what the room holds reaches no reader."""
    sizes = (constant(size), *tensor.sizes[1:])
    room = builder.new_buffer(Layout(tensor.dtype, tensor.device, sizes, contiguous(sizes)))
    builder.write(tensor, _stored(view.narrow(room, 0, constant(0), tensor.sizes[0], constant(1))))
    return room


def _with_rows(builder: Builder, tensor: Tensor, step: int) -> Tensor:
    """An operand in padded rows, if its own are not aligned and it is large, or yet to be written."""
    if tensor.strides[0].value == 1 and tensor.strides[1].value != 1:
        return view.permute(_with_rows(builder, view.permute(tensor, (1, 0)), step), (1, 0))
    rows, size, length = tensor.sizes[0].value, tensor.sizes[1].value, tensor.strides[0].value
    if rows is None or size is None or length is None or length % step == 0 or tensor.strides[1].value != 1:
        return tensor
    if isinstance(tensor, Stored) and rows * size < LARGE:
        return tensor
    return _span(_filled(builder, tensor, step), 1, 0, size)


def _filled(builder: Builder, tensor: Tensor, step: int) -> Stored:
    """A matrix whose rows are filled up with zeros, in memory: one that lies by columns stays so."""
    rows, length = tensor.sizes
    size = _up(length.value or 0, step)
    if length.value == size:
        return builder.store(tensor)
    if tensor not in builder.padded:
        by_columns = tensor.strides[0].value == 1 and tensor.strides[1].value != 1
        sizes = (rows, constant(size))
        strides = (constant(1), rows) if by_columns else contiguous(sizes)
        whole = Result(tensor.dtype, tensor.device, sizes, strides)
        memory = builder.new_buffer(whole)
        builder.write(pad(builder, whole, tensor, [0, size - (length.value or 0)]), memory)
        builder.padded[tensor] = memory
    return builder.padded[tensor]


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
