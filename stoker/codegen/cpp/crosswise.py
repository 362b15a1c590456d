"""Kernels whose operands walk along memory with different loops, as in `x.t() + y`: both loops run in square tiles.

An operand that crosses the last loop is turned into a small array before a tile is computed, or out of one afterwards, by whole
vectors (`tile.h`). So each side reads and writes whole cache lines. A value that is only moved goes straight to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from stoker.codegen.cpp.operation import TYPES
from stoker.codegen.cpp.shape import crosses, crossing
from stoker.loop.body import Instruction
from stoker.loop.index import Dimension, coefficient, uses
from stoker.schedule.kernel import Kernel, Line, Phase
from stoker.shape.expr import Expr, Symbol, substitute, symbol, text

TILE = 64
"""Iterations of each of the two loops in a tile."""


@dataclass(frozen=True, slots=True)
class _Tiled:
    """The two loops, and the lines sorted."""

    kernel: Kernel
    loop: Dimension
    last: Dimension
    moves: tuple[tuple[Instruction, Instruction], ...]
    """Loads that cross, each with the store that alone uses its value."""
    lines: tuple[Line, ...]
    """All others."""

    def crosses(self, i: Instruction) -> bool:
        return crosses(i, self.loop, self.last) and self.kernel.arguments[int(i.data[0][1:])] is i.dtype


def emit_crosswise(emitter: Any) -> None:
    """The loops of the kernel, two of them in tiles."""
    tiled = _sorted(emitter.kernel)
    pair = (tiled.loop, tiled.last)
    lead = tuple(d for d in tiled.kernel.outer if d not in pair)
    counts = [Dimension(symbol(f"{d.symbol.name}_tile"), (d.size + (TILE - 1)) // TILE) for d in pair]
    with emitter.shared((*lead, *counts)):
        for d in pair:
            name, size = text(d.symbol), emitter.expr(d.size)
            emitter.out.line(f"const int64_t {name}_first = {name}_tile * {TILE};")
            emitter.out.line(f"const int64_t {name}_end = minimum<int64_t>({name}_first + {TILE}, {size});")
        for load, store in tiled.moves:
            step = emitter.expr(coefficient(store.data[1], tiled.loop.symbol))
            _turn_in(emitter, tiled, load, "transpose_away", _start(emitter, tiled, store), step)
        if tiled.lines:
            _through_arrays(emitter, tiled)


def _sorted(kernel: Kernel) -> _Tiled:
    (phase,) = kernel.phases
    loop, last = crossing(kernel.outer, [i for _, i in phase.lines]), kernel.outer[-1]
    assert loop is not None
    tiled = _Tiled(kernel, loop, last, (), phase.lines)
    instructions = dict(phase.lines)
    users: dict[int, set[int]] = {}
    for number, i in phase.lines:
        for a in i.arguments:
            users.setdefault(a, set()).add(number)
    moved: dict[int, int] = {}
    for number, i in phase.lines:
        if i.op == "load" and tiled.crosses(i) and len(users[number]) == 1:
            (user,) = users[number]
            if instructions[user].op == "store" and _walks(instructions[user], loop, last):
                if int(instructions[user].data[0][1:]) not in kernel.shared:  # others may read there before it
                    moved[number] = user
    taken = {*moved, *moved.values()}
    moves = tuple((instructions[a], instructions[b]) for a, b in moved.items())
    return replace(tiled, moves=moves, lines=tuple(line for line in phase.lines if line[0] not in taken))


def _walks(store: Instruction, loop: Dimension, last: Dimension) -> bool:
    """Does a store walk along memory with the last loop, and by a fixed step with the other?"""
    along, step = coefficient(store.data[1], last.symbol), coefficient(store.data[1], loop.symbol)
    return along is not None and along.value == 1 and step is not None and not uses(step, last.symbol)


def _through_arrays(emitter: Any, tiled: _Tiled) -> None:
    """Operands that cross become arrays, the tile is computed, and results that cross leave their arrays."""
    out = emitter.out
    loop, last = tiled.loop.symbol, tiled.last.symbol
    place = (loop - _first(loop)) * TILE + last - _first(last)
    crossing_lines = [(n, i) for n, i in tiled.lines if tiled.crosses(i)]
    tile_of = _tiles(crossing_lines)
    for n, i in crossing_lines:
        if tile_of[n] == n:
            out.line(f"alignas(64) {TYPES[i.dtype]} tile{n}[{TILE * TILE}];")
        if i.op == "load":
            _turn_in(emitter, tiled, i, "transpose_tile", f"tile{n}", str(TILE))
    inside = {n: replace(i, data=(f"tile{n}", place, *i.data[2:])) for n, i in crossing_lines}
    phase = Phase(False, tuple((n, inside.get(n, i)) for n, i in tiled.lines if tile_of.get(n, n) == n))
    with out.block(emitter.head(tiled.loop, f"{text(loop)}_first", f"{text(loop)}_end")):
        emitter.simd(True)
        with out.block(emitter.head(tiled.last, f"{text(last)}_first", f"{text(last)}_end")):
            emitter.lines(phase)
    for n, i in crossing_lines:
        if i.op == "store":
            step = emitter.expr(coefficient(i.data[1], last))
            counts = f"{_count(loop)}, {_count(last)}"
            out.line(f"transpose_away(tile{tile_of[n]}, {TILE}, {_start(emitter, tiled, i)}, {step}, {counts});")


def _tiles(lines: Sequence[Line]) -> dict[int, int]:
    """Which line's array each line uses: a value that is stored to several places is turned out of one."""
    first: dict[tuple[int, torch.dtype], int] = {}
    return {n: first.setdefault((i.arguments[0], i.dtype), n) if i.op == "store" else n for n, i in lines}


def _turn_in(emitter: Any, tiled: _Tiled, load: Instruction, how: str, target: str, step: str) -> None:
    """Turn what a load reads in this tile into memory where the last loop walks along."""
    loop, last = tiled.loop.symbol, tiled.last.symbol
    jump = emitter.expr(coefficient(load.data[1], last))
    counts = f"{_count(last)}, {_count(loop)}"
    emitter.out.line(f"{how}({_start(emitter, tiled, load)}, {jump}, {target}, {step}, {counts});")


def _start(emitter: Any, tiled: _Tiled, i: Instruction) -> str:
    """Where an access begins in this tile."""
    buffer, index, *_ = i.data
    first: dict[Any, Expr] = {d.symbol: _first(d.symbol) for d in (tiled.loop, tiled.last)}
    return f"{buffer} + ({emitter.expr(substitute(index, first))})"


def _first(loop: Symbol) -> Symbol:
    return symbol(f"{loop.name}_first")


def _count(loop: Symbol) -> str:
    return f"{loop.name}_end - {loop.name}_first"
