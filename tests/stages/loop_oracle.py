"""What a lowered program means: run it with torch, one node at a time, no fusion, no generated code.

A body runs once over all points of its loops (`Walk`): an index is a tensor of indices, a load is a gather from the buffer's flat
memory. Slow, and the reference that every later stage is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never

import torch

from stoker.loop.index import Dimensions
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.layout import Layout
from stoker.loop.memory import Memory, allocate, conform, fetch
from stoker.loop.node import Extern, Loops, Program, reads
from stoker.loop.op import ELEMENTWISE, outside_code, outside_error
from stoker.loop.philox import philox
from stoker.shape.expr import Expr, Extreme, FloorDiv, Max, Mod, Symbol
from stoker.shape.walk import atoms, evaluate


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


def run_extern(node: Extern, memory: Memory, sizes: Mapping[Symbol, int], layouts: Mapping[str, Layout]) -> None:
    arguments = fetch(node.arguments, memory, sizes)
    keywords = {name: fetch(value, memory, sizes) for name, value in node.keywords.items()}
    result = node.operator(*arguments, **keywords)
    for name, part in zip(node.writes, result if node.several else (result,)):
        if name is not None:
            memory[name] = conform(part, layouts[name], sizes)


def run_loops(node: Loops, memory: Memory, sizes: Mapping[Symbol, int], layouts: Mapping[str, Layout]) -> None:
    for name in node.writes:
        if name not in memory:
            memory[name] = allocate(layouts[name], sizes)
    walk = Walk(node.outer, node.inner, sizes, {name: flat(memory[name]) for name in (*reads(node), *node.writes)})
    walk.run(enumerate(node.body))


def flat(buffer: torch.Tensor) -> torch.Tensor:
    """A buffer's memory as a vector that starts at its first element."""
    reach = 1 + sum((s - 1) * t for s, t in zip(buffer.shape, buffer.stride())) if buffer.numel() else 0
    return buffer.as_strided([reach], [1], buffer.storage_offset())


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a times b plus c, rounded once (of float32: twice, which the oracle may)."""
    return (a.double() * b.double() + c.double()).to(a.dtype)


def _plus_at(number: Any, address: Any) -> Any:
    assert not address.any(), "the oracle has no memory of a device"
    return number


_OWN: dict[str, Callable[..., Any]] = {
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncate_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "decay": torch.exp,
    "normal_tail": lambda x: torch.special.ndtr(-x.abs()),
    "quick_sin": torch.sin,
    "fma": _fma,
    "plus_at": _plus_at,
    "philox": philox,
}
"""Of operations that torch does not have by that name."""

MEANINGS = {name: _OWN.get(name) or getattr(torch, name) for name in ELEMENTWISE}
"""Each operation in torch."""


_REDUCED = {"mul": "prod", "max": "amax", "min": "amin"}
"""Combining stores that scatter_reduce_ knows."""


class Walk:
    """All iterations of a loop nest at once: a value is a tensor over (outer points, inner points), either of which may be 1."""

    def __init__(self, outer: Dimensions, inner: Dimensions, sizes: Mapping[Symbol, int], memory: Memory) -> None:
        self.known: dict[Any, Any] = dict(sizes)
        self.points, self.row = self._walk(outer, (-1, 1)), self._walk(inner, (1, -1))
        self.memory = memory
        """Of each buffer, as a vector."""
        self.values: dict[int, Any] = {}

    def _walk(self, loops: Dimensions, shape: tuple[int, int]) -> int:
        """The loops' numbers at each point, and how many points there are."""
        extents = [evaluate(d.size, self.known) for d in loops]
        place = torch.arange(math.prod(extents))
        for loop, extent in zip(reversed(loops), reversed(extents)):
            self.known[loop.symbol] = (place % max(extent, 1)).view(shape)
            place = place // max(extent, 1)
        return math.prod(extents)

    def run(self, lines: Iterable[tuple[int, LoopInstruction]]) -> None:
        for number, i in lines:
            self.values[number] = self.step(i, [self.values[a] for a in i.arguments])

    def at(self, expr: Expr) -> torch.Tensor:
        """An index expression at each point."""
        found = torch.as_tensor(number_on_grid(expr, self.known))
        return found if found.dim() else found.view(1, 1)

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
                return MEANINGS[i.operation](*arguments)
        assert_never(i)

    def place(self, i: Load | Store) -> torch.Tensor:
        """Where an access goes."""
        return self.at(i.index)

    def load(self, i: Load, condition: list[Any]) -> torch.Tensor:
        memory, place = self.memory[i.buffer].view(i.dtype), self.place(i)
        if not condition:
            return memory[place]
        if not memory.numel():
            return torch.zeros(condition[0].shape, dtype=i.dtype)
        return torch.where(condition[0], memory[torch.where(condition[0], place, 0)], torch.zeros((), dtype=i.dtype))

    def store(self, i: Store, value: torch.Tensor) -> None:
        place = self.place(i)
        shape = torch.broadcast_shapes(place.shape, value.shape, (self.points, 1))
        place, value = (t.expand(shape).reshape(-1) for t in (place, value))
        memory = self.memory[i.buffer].view(i.dtype)
        if i.combine in _REDUCED:
            memory.scatter_reduce_(0, place, value, _REDUCED[i.combine])
        else:
            memory.index_put_((place,), value, accumulate=i.combine == "add")

    def indirect(self, i: Indirect, arguments: list[Any]) -> None:
        limit = self.at(i.size)
        wrapped = torch.where(arguments[0] < 0, arguments[0] + limit, arguments[0]).long()
        bad = (wrapped < 0) | (wrapped >= limit)
        if bool((bad & arguments[1] if len(arguments) > 1 else bad).any()):
            self.leave(outside_code(i.family))
        self.known[i.name] = torch.where(bad, 0, wrapped)

    def leave(self, code: int) -> None:
        """An index is out of range."""
        raise outside_error(code)


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
