"""Kernels whose operands walk along memory with different loops, as in `x.t() + y`: both loops run in square tiles.

An operand that crosses the last loop is turned into a small array before a tile is computed, or out of one afterwards, by whole
vectors (`tile.h`). So each side reads and writes whole cache lines. A value that is only moved goes straight to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch

from stoker.codegen.cpp.function import FunctionText
from stoker.codegen.cpp.operation import TYPES
from stoker.codegen.cpp.shape import crosses, crossing
from stoker.loop.index import Dimension, coefficient, uses
from stoker.loop.instruction import Load, LoopInstruction, Store
from stoker.schedule.kernel import Kernel, Line, Phase
from stoker.shape.expr import Expr, Symbol, symbol, text
from stoker.shape.walk import substitute

TILE = 64
"""Iterations of each of the two loops in a tile."""


@dataclass(frozen=True, slots=True)
class _Tiled:
    """The two loops, and the lines sorted."""

    kernel: Kernel
    loop: Dimension
    last: Dimension
    moves: tuple[tuple[Load, Store], ...]
    """Loads that cross, each with the store that alone uses its value."""
    lines: tuple[Line, ...]
    """All others."""

    def crosses(self, i: LoopInstruction) -> TypeGuard[Load | Store]:
        return crosses(i, self.loop, self.last) and self.kernel.arguments[int(i.buffer[1:])] is i.dtype


def emit_crosswise(emitter: FunctionText) -> None:
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
            step = emitter.expr(_step(store, tiled.loop.symbol))
            _turn_in(emitter, tiled, load, "transpose_away", _start(emitter, tiled, store), step)
        if tiled.lines:
            _through_arrays(emitter, tiled)
        if emitter.copies:
            with emitter.out.block(_head(emitter, tiled.loop)):
                emitter.copy_rows(tiled.last, f"{text(tiled.last.symbol)}_first", f"{text(tiled.last.symbol)}_end")


def _head(emitter: FunctionText, loop: Dimension) -> str:
    """A loop within a tile."""
    name = text(loop.symbol)
    return emitter.head(loop, f"{name}_first", f"{name}_end")


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
    moves: dict[int, tuple[Load, Store]] = {}
    taken: set[int] = set()
    for number, i in phase.lines:
        if tiled.crosses(i) and isinstance(i, Load) and len(users[number]) == 1:
            (user,) = users[number]
            store = instructions[user]
            if isinstance(store, Store) and _walks(store, loop, last):
                if int(store.buffer[1:]) not in kernel.shared:  # others may read there before it
                    moves[number] = (i, store)
                    taken |= {number, user}
    rest = tuple(line for line in phase.lines if line[0] not in taken)
    return replace(tiled, moves=tuple(moves.values()), lines=rest)


def _step(access: Load | Store, loop: Symbol) -> Expr:
    """How far an access moves with each step of a loop in which its index is linear."""
    found = coefficient(access.index, loop)
    assert found is not None
    return found


def _walks(store: Store, loop: Dimension, last: Dimension) -> bool:
    """Does a store walk along memory with the last loop, and by a fixed step with the other?"""
    along, step = coefficient(store.index, last.symbol), coefficient(store.index, loop.symbol)
    return along is not None and along.value == 1 and step is not None and not uses(step, last.symbol)


def _through_arrays(emitter: FunctionText, tiled: _Tiled) -> None:
    """Operands that cross become arrays, the tile is computed, and results that cross leave their arrays."""
    out = emitter.out
    loop, last = tiled.loop.symbol, tiled.last.symbol
    place = (loop - _first(loop)) * TILE + last - _first(last)
    crossing_lines = [(n, i) for n, i in tiled.lines if tiled.crosses(i)]
    tile_of = _tiles(crossing_lines)
    for n, i in crossing_lines:
        if tile_of[n] == n:
            out.line(f"alignas(64) {TYPES[i.dtype]} tile{n}[{TILE * TILE}];")
        if isinstance(i, Load):
            _turn_in(emitter, tiled, i, "transpose_tile", f"tile{n}", str(TILE))
    inside = {n: replace(i, buffer=f"tile{n}", index=place) for n, i in crossing_lines}
    phase = Phase(False, tuple((n, inside.get(n, i)) for n, i in tiled.lines if tile_of.get(n, n) == n))
    with out.block(_head(emitter, tiled.loop)):
        emitter.simd(True)
        with out.block(_head(emitter, tiled.last)):
            emitter.lines(phase)
    for n, i in crossing_lines:
        if isinstance(i, Store):
            step = emitter.expr(_step(i, last))
            counts = f"{_count(loop)}, {_count(last)}"
            out.line(f"transpose_away(tile{tile_of[n]}, {TILE}, {_start(emitter, tiled, i)}, {step}, {counts});")


def _tiles(lines: Sequence[tuple[int, Load | Store]]) -> dict[int, int]:
    """Which line's array each line uses: a value that is stored to several places is turned out of one."""
    first: dict[tuple[int, torch.dtype], int] = {}
    return {n: first.setdefault((i.arguments[0], i.dtype), n) if isinstance(i, Store) else n for n, i in lines}


def _turn_in(emitter: FunctionText, tiled: _Tiled, load: Load, how: str, target: str, step: str) -> None:
    """Turn what a load reads in this tile into memory where the last loop walks along."""
    loop, last = tiled.loop.symbol, tiled.last.symbol
    jump = emitter.expr(_step(load, last))
    counts = f"{_count(last)}, {_count(loop)}"
    emitter.out.line(f"{how}({_start(emitter, tiled, load)}, {jump}, {target}, {step}, {counts});")


def _start(emitter: FunctionText, tiled: _Tiled, i: Load | Store) -> str:
    """Where an access begins in this tile."""
    first = {d.symbol: _first(d.symbol) for d in (tiled.loop, tiled.last)}
    return f"{i.buffer} + ({emitter.expr(substitute(i.index, first))})"


def _first(loop: Symbol) -> Symbol:
    return symbol(f"{loop.name}_first")


def _count(loop: Symbol) -> str:
    return f"{loop.name}_end - {loop.name}_first"
