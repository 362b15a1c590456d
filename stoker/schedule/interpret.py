"""What a kernel means: run it with torch, all points of its loops at once. The oracle that every code generator is compared with.

In:  a kernel, its buffers (each from its first element on) and its sizes.
Out: the buffers, written; and the bits of the families of indices that were out of range.

A value is a tensor over (outer points, inner points), either of which may be 1. Held by tests/stages/test_kernels.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import torch

from stoker.loop.index import Dimensions
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.interpret import number_on_grid, reduced_rows, scanned_rows
from stoker.loop.op import ELEMENTWISE, outside_code
from stoker.schedule.kernel import Kernel
from stoker.schedule.product import PRODUCT, Factor, Product, Prologue, Windows
from stoker.shape.expr import Expr, symbol
from stoker.shape.walk import evaluate


def run_kernel(kernel: Kernel, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> int:
    """Run phase by phase."""
    run = _Run(kernel, buffers, sizes)
    for phase in kernel.phases:
        for number, i in phase.lines:
            run.values[number] = run.step(i, [run.values[a] for a in i.arguments])
    return run.outside


class _Run:
    def __init__(self, kernel: Kernel, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        self.known: dict[Any, Any] = {symbol(f"n{n}"): size for n, size in enumerate(sizes)}
        self.points = self._walk(kernel.outer, 0)
        self.row = self._walk(kernel.inner, 1)
        self.memory = {f"a{n}": _flat(buffer) for n, buffer in enumerate(buffers)}
        self.memory |= {f"s{n}": torch.empty(self.points * self.row, dtype=d) for n, d in enumerate(kernel.scratch)}
        if kernel.product is not None:
            self.memory[PRODUCT] = _multiplied(kernel, kernel.product, self.memory)
        self.values: dict[int, Any] = {}
        self.outside = 0

    def _walk(self, loops: Dimensions, axis: int) -> int:
        """The loops' numbers at each point, and how many points there are."""
        extents = [evaluate(d.size, self.known) for d in loops]
        total = 1
        for extent in extents:
            total *= extent
        place = torch.arange(total)
        for loop, extent in zip(reversed(loops), reversed(extents)):
            self.known[loop.symbol] = (place % max(extent, 1)).view((-1, 1) if axis == 0 else (1, -1))
            place = place // max(extent, 1)
        return total

    def at(self, expr: Expr) -> torch.Tensor:
        """An index expression at each point."""
        found = torch.as_tensor(number_on_grid(expr, self.known))
        return found.view(1, 1) if not found.dim() else found

    def step(self, i: LoopInstruction, arguments: list[Any]) -> Any:
        match i:
            case Load():
                return self.load(i, arguments)
            case Store():
                return self.store(i, arguments[0])
            case Number():
                return torch.full((1, 1), i.value, dtype=i.dtype)
            case Index():
                return self.at(i.expr).to(i.dtype)
            case Indirect():
                return self.indirect(i, arguments)
            case Reduce():
                return reduced_rows(i.kind, arguments[0].expand(self.points, self.row), i.dtype)[:, None]
            case Scan():
                return scanned_rows(i.kind, arguments[0].expand(self.points, self.row))
            case Convert():
                return arguments[0].to(i.dtype)
            case Apply():
                return ELEMENTWISE[i.operation].meaning(*arguments)
        assert_never(i)

    def place(self, buffer: str, index: Expr) -> torch.Tensor:
        """Where an access goes; scratch is memory of each outer point."""
        apart = torch.arange(self.points)[:, None] * self.row if buffer[0] == "s" else 0
        return self.at(index) + apart

    def load(self, i: Load, condition: list[Any]) -> torch.Tensor:
        memory, place = self.memory[i.buffer].view(i.dtype), self.place(i.buffer, i.index)
        if not condition:
            return memory[place]
        if not memory.numel():
            return torch.zeros(condition[0].shape, dtype=i.dtype)
        return torch.where(condition[0], memory[torch.where(condition[0], place, 0)], torch.zeros((), dtype=i.dtype))

    def store(self, i: Store, value: torch.Tensor) -> None:
        place = self.place(i.buffer, i.index)
        shape = torch.broadcast_shapes(place.shape, value.shape, (self.points, 1))
        place, value = (t.expand(shape).reshape(-1) for t in (place, value))
        memory = self.memory[i.buffer].view(i.dtype)
        if i.combine in ("mul", "max", "min"):
            memory.scatter_reduce_(0, place, value, {"mul": "prod", "max": "amax", "min": "amin"}[i.combine])
        else:
            memory.index_put_((place,), value, accumulate=i.combine == "add")

    def indirect(self, i: Indirect, arguments: list[Any]) -> None:
        limit = self.at(i.size)
        wrapped = torch.where(arguments[0] < 0, arguments[0] + limit, arguments[0]).long()
        bad = (wrapped < 0) | (wrapped >= limit)
        if bool((bad & arguments[1] if len(arguments) > 1 else bad).any()):
            self.outside |= outside_code(i.family)
        self.known[i.name] = torch.where(bad, 0, wrapped)


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
    for number, i in operand.lines:
        run.values[number] = run.step(i, [run.values[a] for a in i.arguments])
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


def _flat(buffer: torch.Tensor) -> torch.Tensor:
    """A buffer's memory as a vector that starts at its first element."""
    reach = 1 + sum((s - 1) * t for s, t in zip(buffer.shape, buffer.stride())) if buffer.numel() else 0
    return buffer.as_strided([reach], [1], buffer.storage_offset())
