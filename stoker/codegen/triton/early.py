"""What a program asks memory for before anything else, so that all of it is on the way at once.

In:  a kernel, and how it is cut.
Out: lines to write first: loads whose places are known, then others with what their places are computed of. Triton keeps loads behind the
     reductions and writes that they stand behind, because it cannot know that what is written is other memory. It is: an argument is
     written over another one only when that was read.

Whole tiles that are read behind a reduction stay there, but for kernels of few programs: nothing else hides their wait, and registers
are free. Held by tests/stages/test_early.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.codegen.triton.tiling import LANES, Tiling
from stoker.loop.instruction import Indirect, Load, LoopInstruction, Reduce, Scan, Store, index_expressions
from stoker.schedule.kernel import Kernel, Line
from stoker.shape.expr import Expr, Symbol
from stoker.shape.walk import free_symbols

MOST_READS = 16
"""Values that wait in registers for their use."""
FEW_PROGRAMS = 64
MOST_REGISTERS = 64
"""Of a thread, for tiles that wait for their use."""


def early_lines(kernel: Kernel, tiling: Tiling, programs: Expr) -> list[Line]:
    """The lines to write first."""
    lines = [line for phase in kernel.phases for line in phase.lines]
    stored = {i.buffer for _, i in lines if isinstance(i, Store)}
    if not stored:
        return []
    own = _known_at_once(lines, stored)
    inside = changing(lines, {d.symbol for d in kernel.inner})
    loops = {d.symbol for d in (*kernel.outer, *kernel.inner)}
    reads = {n: i for n, i in lines if n in own and isinstance(i, Load) and i.buffer[0] == "a"}
    plain = {n for n, i in reads.items() if not i.arguments and _symbols(i) <= loops}
    chosen = {n for n in reads if n not in inside}
    if not tiling.persistent:
        chosen &= plain
    elif _waits_alone(kernel, tiling, programs, [i for n, i in reads.items() if n in inside]):
        chosen = set(reads)
    else:
        chosen |= reads.keys() & _opening(lines)
    if len(chosen) > MOST_READS:
        return []
    first = [line for line in lines if line[0] in chosen & plain]
    return first + [line for line in lines if line[0] in _needed(lines, chosen) - (chosen & plain)]


def _known_at_once(lines: Sequence[Line], stored: set[str]) -> set[int]:
    """Values that are made of no reduction, and of nothing that the kernel writes."""
    found: set[int] = set()
    waiting = {i.name for _, i in lines if isinstance(i, Indirect)}
    for n, i in lines:
        late = isinstance(i, (Reduce, Scan, Store)) or (isinstance(i, Load) and i.buffer in stored)
        if not late and found.issuperset(i.arguments) and waiting.isdisjoint(_symbols(i)):
            found.add(n)
            waiting -= _named(i)
    return found


def changing(lines: Sequence[Line], loops: set[Symbol]) -> set[int]:
    """Values that change within some loops."""
    found: set[int] = set()
    changing = set(loops)
    for n, i in lines:
        if not isinstance(i, Reduce) and not (found.isdisjoint(i.arguments) and changing.isdisjoint(_symbols(i))):
            found.add(n)
            changing |= _named(i)
    return found


def _opening(lines: Sequence[Line]) -> set[int]:
    """What stands in front of all reductions and writes."""
    stops = [place for place, (_, i) in enumerate(lines) if isinstance(i, (Reduce, Scan, Store))]
    return {n for n, _ in lines[: stops[0]]}


def _waits_alone(kernel: Kernel, tiling: Tiling, programs: Expr, tiles: Sequence[Load]) -> bool:
    """Are there few programs, with registers for all that they read?"""
    if not kernel.inner or programs.value is None or programs.value > FEW_PROGRAMS:
        return False
    each = -(-tiling.x_block * tiling.r_block // (LANES * tiling.warps))
    return each * sum(i.dtype.itemsize for i in tiles) <= 4 * MOST_REGISTERS


def _needed(lines: Sequence[Line], wanted: set[int]) -> set[int]:
    """Values, with those they are computed of."""
    found, names = set(wanted), set[Symbol]()
    for n, i in reversed(lines):
        if n in found or not names.isdisjoint(_named(i)):
            found |= {n, *i.arguments}
            names |= _symbols(i)
    return found


def _named(i: LoopInstruction) -> set[Symbol]:
    return {i.name} if isinstance(i, Indirect) else set()


def _symbols(i: LoopInstruction) -> set[Symbol]:
    return {s for e in index_expressions(i) for s in free_symbols(e)}
