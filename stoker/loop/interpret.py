"""What a lowered program means: run it with torch, one node at a time, no fusion, no generated code.

A body runs once over the whole grid of its loops: an index is a tensor of indices, a load is a gather from the buffer's flat
memory. Slow, and the reference that every later stage is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import torch

from stoker.loop.index import uses
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.layout import Layout
from stoker.loop.node import Extern, Loops, Program
from stoker.loop.op import ELEMENTWISE, outside_code, outside_error
from stoker.loop.view import Scalar, Stored
from stoker.nest import map_leaves
from stoker.shape.expr import Expr, Extreme, FloorDiv, Max, Mod, Symbol
from stoker.shape.walk import atoms, evaluate

Memory = dict[str, torch.Tensor]
"""Buffers as tensors whose first element is the buffer's first."""


def interpret(program: Program, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a program on real inputs."""
    sizes = bind(program, inputs)
    memory: Memory = {n: value for n, value in zip(program.inputs, inputs) if n is not None}
    memory.update(program.constants)
    memory.update({name: allocate(program.layouts[name], sizes) for name in program.blank})
    for node in program.nodes:
        if isinstance(node, Loops):
            run_loops(node, memory, sizes, program.layouts)
        else:
            run_extern(node, memory, sizes, program.layouts)
    return tuple(fetch(output, memory, sizes) for output in program.outputs)


def bind(program: Program, inputs: Sequence[Any]) -> dict[Symbol, int]:
    """The values of size symbols on these inputs."""
    return {name: source.read(inputs) for name, source in program.symbols.items()}


def fetch(value: Any, memory: Memory, sizes: Mapping[Symbol, int]) -> Any:
    """An argument or output as torch wants it."""
    return map_leaves(lambda leaf: _fetched(leaf, memory, sizes), value)


def _fetched(value: Any, memory: Memory, sizes: Mapping[Symbol, int]) -> Any:
    if isinstance(value, Stored):
        base = memory[value.buffer]
        if isinstance(value, Scalar):
            return base.item()
        if base.layout is not torch.strided:
            return base  # a packed weight, which only libraries read
        shape, strides = [evaluate(s, sizes) for s in value.sizes], [evaluate(s, sizes) for s in value.strides]
        if base.dtype is not value.dtype:
            base = base.view(value.dtype)
        return base.as_strided(shape, strides, base.storage_offset() + evaluate(value.offset, sizes))
    return evaluate(value, sizes) if isinstance(value, Expr) else value


def allocate(layout: Layout, sizes: Mapping[Symbol, int]) -> torch.Tensor:
    """Memory for a buffer."""
    shape, strides = [evaluate(s, sizes) for s in layout.sizes], [evaluate(s, sizes) for s in layout.strides]
    return torch.empty_strided(shape, strides, dtype=layout.dtype, device=layout.device)


def run_extern(node: Extern, memory: Memory, sizes: Mapping[Symbol, int], layouts: Mapping[str, Layout]) -> None:
    arguments = fetch(node.arguments, memory, sizes)
    keywords = {name: fetch(value, memory, sizes) for name, value in node.keywords.items()}
    result = node.operator(*arguments, **keywords)
    for name, part in zip(node.writes, result if node.several else (result,)):
        if name is not None:
            memory[name] = conform(part, layouts[name], sizes)


def conform(result: torch.Tensor, layout: Layout, sizes: Mapping[Symbol, int]) -> torch.Tensor:
    """A library's result as the program expects it: copied if its strides are not those that were foretold."""
    strides = [evaluate(s, sizes) for s in layout.strides]
    if result.dtype is not layout.dtype:
        raise TypeError(f"a library call gave {result.dtype} where {layout.dtype} was foretold")
    if all(a == b or n <= 1 for a, b, n in zip(result.stride(), strides, result.shape)) or not result.numel():
        return result
    return allocate(layout, sizes).copy_(result)


def run_loops(node: Loops, memory: Memory, sizes: Mapping[Symbol, int], layouts: Mapping[str, Layout]) -> None:
    for name in node.writes:
        if name not in memory:
            memory[name] = allocate(layouts[name], sizes)
    Grid(node, memory, sizes).run()


_REDUCED = {"mul": "prod", "max": "amax", "min": "amin"}
"""Combining stores that scatter_reduce_ knows."""


class Grid:
    """All iterations of a loop nest at once: each value is a tensor over the grid, or over its outer part."""

    def __init__(self, node: Loops, memory: Memory, sizes: Mapping[Symbol, int]) -> None:
        self.node, self.memory = node, memory
        self.shape = [evaluate(d.size, sizes) for d in (*node.outer, *node.inner)]
        self.outer_rank = len(node.outer)
        self.known: dict[Any, Any] = dict(sizes)
        for axis, dimension in enumerate((*node.outer, *node.inner)):
            shape = [1] * len(self.shape)
            shape[axis] = -1
            self.known[dimension.symbol] = torch.arange(self.shape[axis]).view(shape)
        self.values: list[Any] = []

    def run(self) -> None:
        for instruction in self.node.body:
            arguments = [self.values[a] for a in instruction.arguments]
            self.values.append(self.step(instruction, arguments))

    def step(self, i: LoopInstruction, arguments: list[Any]) -> Any:
        match i:
            case Load():
                return self.load(i, arguments)
            case Store():
                return self.store(i.buffer, i.index, i.combine, arguments[0])
            case Number():
                return torch.full([1] * len(self.shape), i.value, dtype=i.dtype)
            case Index():
                return torch.as_tensor(self.number(i.expr)).to(i.dtype)
            case Indirect():
                return self.indirect(i, arguments)
            case Reduce():
                return self.reduce(i.kind, arguments[0], i.dtype)
            case Scan():
                return self.scan(i.kind, arguments[0])
            case Convert():
                return arguments[0].to(i.dtype)
            case Apply():
                return ELEMENTWISE[i.operation].meaning(*arguments)
        assert_never(i)

    def indirect(self, i: Indirect, arguments: list[Any]) -> None:
        limit = self.number(i.size)
        wrapped = torch.where(arguments[0] < 0, arguments[0] + limit, arguments[0]).long()
        outside = (wrapped < 0) | (wrapped >= limit)
        if bool((outside & arguments[1] if len(arguments) > 1 else outside).any()):
            raise outside_error(outside_code(i.family))
        self.known[i.name] = torch.where(outside, 0, wrapped)

    def number(self, expr: Expr) -> Any:
        return number_on_grid(expr, self.known)

    def load(self, i: Load, condition: list[Any]) -> Any:
        flat = self.flat(i.buffer).view(i.dtype)
        where = torch.as_tensor(self.number(i.index))
        if not where.dim():
            where = where.view([1] * len(self.shape))
        if not condition:
            return flat[where]
        safe = torch.where(condition[0], where, 0)
        if not flat.numel():
            return torch.zeros(safe.shape, dtype=flat.dtype)
        return torch.where(condition[0], flat[safe], torch.zeros((), dtype=flat.dtype))

    def flat(self, buffer: str) -> torch.Tensor:
        """A buffer's memory as a vector that starts at its first element."""
        base = self.memory[buffer]
        reach = 1 + sum((s - 1) * t for s, t in zip(base.shape, base.stride())) if base.numel() else 0
        return base.as_strided([reach], [1], base.storage_offset())

    def store(self, buffer: str, index: Expr, combine: str | None, value: torch.Tensor) -> None:
        shape = list(self.shape)
        if not any(uses(index, d.symbol) for d in self.node.inner):
            shape[self.outer_rank :] = [1] * len(self.node.inner)
        where = torch.as_tensor(self.number(index))
        where, value = where.expand(shape).reshape(-1), value.expand(shape).reshape(-1)
        if combine in _REDUCED:
            self.flat(buffer).scatter_reduce_(0, where, value, _REDUCED[combine])
        else:
            self.flat(buffer).index_put_((where,), value, accumulate=combine == "add")

    def rows(self, value: torch.Tensor) -> torch.Tensor:
        """The inner dimensions as one, the last."""
        return value.expand(self.shape).reshape(
            [*self.shape[: self.outer_rank], math.prod(self.shape[self.outer_rank :])]
        )

    def scan(self, kind: str, value: torch.Tensor) -> torch.Tensor:
        """Along the inner dimensions, in their order."""
        return scanned_rows(kind, self.rows(value)).reshape(self.shape)

    def reduce(self, kind: str, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Over the inner dimensions, of which one element remains."""
        outer = self.shape[: self.outer_rank]
        return reduced_rows(kind, self.rows(value), dtype).reshape([*outer, *[1] * len(self.node.inner)])


def _divisor(number: Any) -> Any:
    """A size of 0 divides places that nobody reads."""
    return torch.where(number == 0, 1, number) if isinstance(number, torch.Tensor) else number or 1


def number_on_grid(expr: Expr, values: Mapping[Any, Any]) -> Any:
    """An index expression where symbols are numbers, or tensors of numbers."""
    known = dict(values)

    def total(part: Expr) -> Any:
        result: Any = part.offset
        for monomial, factor in part.terms:
            product: Any = factor
            for atom in monomial:
                product = product * known[atom]
            result = result + product
        return result

    for atom in atoms(expr):
        match atom:
            case FloorDiv(numerator=a, denominator=b):
                known[atom] = total(a) // _divisor(total(b))
            case Mod(numerator=a, denominator=b):
                known[atom] = total(a) % _divisor(total(b))
            case Extreme():
                choose = torch.maximum if isinstance(atom, Max) else torch.minimum
                parts = [torch.as_tensor(total(a)) for a in atom.arguments]
                known[atom] = parts[0]
                for part in parts[1:]:
                    known[atom] = choose(known[atom], part)
    return total(expr)


def scanned_rows(kind: str, rows: torch.Tensor) -> torch.Tensor:
    """A running reduction along the last dimension."""
    match kind:
        case "sum" | "prod":
            return getattr(torch, "cum" + kind)(rows, -1, dtype=rows.dtype)
        case "logaddexp":
            return torch.logcumsumexp(rows, -1)
    both = getattr(torch, "cum" + kind.removeprefix("arg"))(rows, -1)
    return both.indices if kind.startswith("arg") else both.values


def reduced_rows(kind: str, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A reduction of the last dimension."""
    match kind:
        case "sum" | "prod":
            return getattr(torch, kind)(rows, -1, dtype=dtype)
        case "max" | "min":
            return getattr(torch, "a" + kind)(rows, -1)
        case "any" | "all":
            return getattr(torch, kind)(rows, -1)
        case "xor_sum":
            return _exclusive_or(rows)
        case "mean":
            return rows.mean(-1)
        case "moment":
            return (rows - rows.mean(-1, keepdim=True)).square().sum(-1)
    return getattr(torch, kind)(rows.to(torch.uint8) if rows.dtype is torch.bool else rows, -1)


def _exclusive_or(rows: torch.Tensor) -> torch.Tensor:
    """Of all elements in a row, halving it until one is left."""
    while rows.shape[-1] > 1:
        half = rows.shape[-1] // 2
        rows = torch.cat([rows[..., :half] ^ rows[..., half : 2 * half], rows[..., 2 * half :]], -1)
    return rows[..., 0] if rows.shape[-1] else rows.new_zeros(rows.shape[:-1])
