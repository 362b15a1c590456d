"""What a kernel means: run it with torch, all points of its loops at once. The oracle that every code generator is compared with.

In:  a kernel, its buffers (each from its first element on) and its sizes.
Out: the buffers, written; and the bits of the families of indices that were out of range.

A kernel is walked as a program's loops are (`tests/stages/loop_oracle.py`). Held by tests/stages/test_kernels.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from stoker.loop.instruction import Load, Store
from stoker.schedule.kernel import Kernel
from stoker.schedule.product import PRODUCT, Factor, Product, Prologue, Windows
from stoker.shape.expr import symbol
from tests.stages.loop_oracle import Walk, flat


def run_kernel(kernel: Kernel, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> int:
    """Run phase by phase."""
    run = _Run(kernel, buffers, sizes)
    for phase in kernel.phases:
        run.run(phase.lines)
    return run.outside


class _Run(Walk):
    def __init__(self, kernel: Kernel, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        known = {symbol(f"n{n}"): size for n, size in enumerate(sizes)}
        super().__init__(kernel.outer, kernel.inner, known, {f"a{n}": flat(buffer) for n, buffer in enumerate(buffers)})
        self.memory |= {f"s{n}": torch.empty(self.points * self.row, dtype=d) for n, d in enumerate(kernel.scratch)}
        if kernel.product is not None:
            self.memory[PRODUCT] = _multiplied(kernel, kernel.product, self.memory)
        self.outside = 0

    def place(self, i: Load | Store) -> torch.Tensor:
        """Where an access goes; scratch is memory of each outer point."""
        return super().place(i) + (torch.arange(self.points)[:, None] * self.row if i.buffer[0] == "s" else 0)

    def leave(self, code: int) -> None:
        self.outside |= code


def _multiplied(kernel: Kernel, product: Product, memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The product that a kernel computes, as a vector."""

    def seen(operand: Factor | Prologue, rows: int, columns: int) -> torch.Tensor:
        sizes = (product.batch, rows, columns)
        if isinstance(operand, Prologue):
            return _made(kernel, operand, memory).reshape(sizes).float()
        return memory[f"a{operand.argument}"].as_strided(sizes, operand.strides, operand.offset).float()

    if isinstance(product.left, Windows):
        assert isinstance(product.right, Factor)
        total = _convolved(product, product.left, product.right, memory)
    else:
        left = seen(product.left, product.rows, product.shared)
        total = left @ seen(product.right, product.shared, product.columns)
    if product.bias is not None:
        total = total + seen(product.bias, product.rows, product.columns)
    return (total.transpose(0, 1) if product.side_by_side else total).to(product.dtype).flatten()


def _made(kernel: Kernel, operand: Prologue, memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """An operand that a kernel computes."""
    run = _Run(replace(kernel, outer=operand.loops, product=None), [memory[f"a{n}"] for n in range(len(memory))], [])
    run.run(operand.lines)
    made: torch.Tensor = run.values[operand.value]
    return made.expand(run.points, 1)


def _convolved(product: Product, left: Windows, right: Factor, memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Windows times weights, with channels fastest."""
    count = product.rows // (left.places[0] * left.places[1])
    sizes, strides = (count, product.batch * left.channels, *left.size), (left.image, left.channel, *left.strides)
    images = memory[f"a{left.argument}"].as_strided(sizes, strides, left.offset).float()
    _, channel, column = right.strides
    weights = memory[f"a{right.argument}"].as_strided(
        (product.batch * product.columns, left.channels, *left.kernel),
        (column, channel, *left.right_strides),
        right.offset,
    )
    made = torch.conv2d(images, weights.float(), None, left.step, left.padding, left.dilation, product.batch)
    return made.permute(0, 2, 3, 1).reshape(product.rows, product.batch, product.columns).transpose(0, 1)
