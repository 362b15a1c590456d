"""A matrix product at the head of a kernel: a program makes a tile of it, which the rest of the kernel reads as `p`.

Programs of neighbouring tiles run at the same time, some rows of tiles together, so that what they read is still in the cache. Rows and
columns outside the product are those of its first tile's, and not stored; the shared size is masked where it does not fill its tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from stoker.codegen.triton.operation import TYPES
from stoker.codegen.triton.tiling import Tiling
from stoker.codegen.triton.windows import sum_windows
from stoker.codegen.writer import Writer
from stoker.loop.instruction import Load, LoopInstruction
from stoker.schedule.product import PRODUCT, Factor, Product, Prologue, Windows
from stoker.shape.expr import Expr

TOGETHER = 8
"""Rows of tiles whose programs run side by side."""


def places_in_product(lines: Iterable[LoopInstruction]) -> set[Expr]:
    """Where a kernel reads its product."""
    return {i.index for i in lines if isinstance(i, Load) and i.buffer == PRODUCT}


Make = Callable[[Prologue, str], str]
"""Writes the lines of an operand, "left" or "right", and says what it is called. Its rows and columns are `near_rows`, `near_columns`, and
`shared` along the shared size."""


def write_product(out: Writer, product: Product, tiling: Tiling, rows: str, columns: str, make: Make) -> None:
    """The tile of this program, and the names of its rows and columns."""
    _place(out, product, tiling)
    out.line(f"near_rows = {_near('all_rows', product.rows, tiling.y_block)}[:, None]")
    out.line(f"near_columns = {_near('all_columns', product.columns, tiling.x_block)}[None, :]")
    _sum(out, product, tiling, make)
    if product.bias is not None:
        bias = product.bias
        out.line(f"total = total + tl.load({_start(bias, '0', 'near_columns')}).to(tl.float32)")
    out.line(f"{PRODUCT} = total.to({TYPES[product.dtype]})")
    out.line(f"{rows} = all_rows[:, None]")
    out.line(f"{columns} = all_columns[None, :]")
    out.line(f"y_inside = {rows} < {product.rows}")
    out.line(f"x_inside = {columns} < {product.columns}")


def _near(places: str, size: int, block: int) -> str:
    """Places of a tile that are inside the product. Triton is told which stay neighbours, so that they are read at once: the places outside
    are read, too, but nobody looks at what is computed of them."""
    if size % block == 0:
        return places
    together = math.gcd(size, block)
    return f"tl.max_contiguous(tl.multiple_of(tl.where({places} < {size}, {places}, 0), {together}), {together})"


def _place(out: Writer, product: Product, tiling: Tiling) -> None:
    """Which tile a program makes."""
    high, wide = -(-product.rows // tiling.y_block), -(-product.columns // tiling.x_block)
    out.line(f"rest = program // {high * wide}")
    out.line(f"tile = program % {high * wide}")
    out.line(f"first = tile // {TOGETHER * wide} * {TOGETHER}")
    out.line(f"tall = tl.minimum({high} - first, {TOGETHER})")
    out.line(f"down = first + (tile % {TOGETHER * wide}) % tall")
    out.line(f"across = (tile % {TOGETHER * wide}) // tall")
    out.line(f"all_rows = down * {tiling.y_block} + tl.arange(0, {tiling.y_block})")
    out.line(f"all_columns = across * {tiling.x_block} + tl.arange(0, {tiling.x_block})")


def _sum(out: Writer, product: Product, tiling: Tiling, make: Make) -> None:
    """Over the shared size, tile by tile."""
    out.line(f"k = tl.arange(0, {tiling.k_block})")
    out.line(f"total = tl.zeros([{tiling.y_block}, {tiling.x_block}], tl.float32)")
    left, right = product.left, product.right
    if isinstance(right, Factor):
        out.line(f"right = {_start(right, 'k[:, None]', 'near_columns')}")
    if isinstance(left, Windows):
        assert isinstance(right, Factor), "windows are multiplied with what is in memory"
        sum_windows(out, left, right, tiling.k_block)
        return
    if isinstance(left, Factor):
        out.line(f"left = {_start(left, 'near_rows', 'k[None, :]')}")
    _sum_rows(out, left, right, product.shared, tiling.k_block, make)


def _sum_rows(
    out: Writer, left: Factor | Prologue, right: Factor | Prologue, shared: int, step: int, make: Make
) -> None:
    whole = shared % step == 0
    with out.indented(f"for k_start in range(0, {shared}, {step}):"):
        if not whole:
            out.line(f"k_inside = k < {shared} - k_start")
        if isinstance(left, Prologue) or isinstance(right, Prologue):
            out.line("shared = k_start + k")
        masks = ("", "") if whole else (", k_inside[None, :], other=0", ", k_inside[:, None], other=0")
        first = make(left, "left") if isinstance(left, Prologue) else f"tl.load(left{masks[0]})"
        second = make(right, "right") if isinstance(right, Prologue) else f"tl.load(right{masks[1]})"
        out.line(f"total = tl.dot({first}, {second}, total)")
        if isinstance(left, Factor):
            out.line(f"left += {step * left.strides[2]}")
        if isinstance(right, Factor):
            out.line(f"right += {step * right.strides[1]}")


def _start(factor: Factor, rows: str, columns: str) -> str:
    batch, row, column = factor.strides
    lead = f"rest * {batch} + " if batch else ""
    return f"a{factor.argument} + ({lead}{rows} * {row} + {columns} * {column} + {factor.offset})"
