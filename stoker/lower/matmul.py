"""Matrix products: library calls, given rows that begin where fast kernels want them.

A product whose rows are no multiple of the target's alignment (a vocabulary of 30,522 words in half precision) runs through a slow
kernel. Where nobody sees how the result lies in memory, its rows are padded; what the program returns is copied from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker.loop.view import Tensor
from stoker.lower.builder import Builder
from stoker.lower.registry import Decline, Result, find, lower
from stoker.shape.expr import constant

LARGE = 1 << 20
"""Elements of a result from which padding its rows is worth a copy of it."""
PRODUCT = "a matrix product"


@lower("mm.default", calls=True)
def mm(builder: Builder, out: Result, a: Tensor, b: Tensor) -> Any:
    return builder.call(find("mm.default"), (a, b), {}, _padded(builder, out))


@lower("addmm.default", calls=True)
def addmm(builder: Builder, out: Result, bias: Tensor, a: Tensor, b: Tensor, **scales: Any) -> Any:
    return builder.call(find("addmm.default"), (bias, a, b), scales, _padded(builder, out))


def _padded(builder: Builder, out: Result) -> Result:
    """The result with rows as the target wants them; declines where they are so already."""
    step = builder.target(out.device).matmul_alignment_bytes // out.dtype.itemsize
    rows, columns = (size.value for size in out.sizes)
    if step <= 1 or rows is None or columns is None or columns % step == 0 or rows * columns < LARGE:
        raise Decline(PRODUCT)
    return replace(out, strides=(constant(-(-columns // step) * step), constant(1)))
