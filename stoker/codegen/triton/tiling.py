"""How a kernel is cut into tiles: the sizes of a tile, and the warps that compute it.

In:  a kernel and the target.
Out: a `Tiling`. It depends on structure and static sizes alone, so that equal kernels have equal sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stoker.loop.index import Dimension, Dimensions, coefficient, count, is_computed, most_crossed, walks
from stoker.loop.instruction import Apply, Load, LoopInstruction, Reduce, Scan, Store
from stoker.schedule.kernel import Kernel
from stoker.shape.walk import free_symbols

LANES = 32
"""Threads of a warp."""
LONGEST_ROW = 8192
"""Elements of the inner loops up to which a program holds all of them in registers (a persistent reduction)."""
LONGEST_COLUMN = 64
"""The same where neighbouring results lie side by side: a tile is as wide as memory is read at once."""
SIDE_BY_SIDE = 16
"""Rows that one program makes if they share memory: half precision numbers that are read at once."""
TYPICAL_COUNT = 1 << 20
"""Points that a symbolic size counts as."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes are powers of two. `y` is the loop that is an axis of its own because some memory is walked along it."""

    x_block: int
    r_block: int = 1
    persistent: bool = True
    """Are all inner points in one tile?"""
    warps: int = 4
    y: Dimension | None = None
    y_block: int = 1
    k_block: int = 1
    """Of a matrix product: how far it goes along the shared size at once."""
    stages: int = 3
    """Of a matrix product: how many turns of its loop have their memory on the way."""
    ahead: int = 1
    """The same of a reduction's loop; 1: what a turn reads is asked for when it begins."""


def alternatives(kernel: Kernel, usual: Tiling) -> list[Tiling]:
    """Other sizes that may be faster, for measuring."""
    if kernel.product is not None:
        return product_tilings(kernel)[1:]
    warps = [w for w in (1, 2, 4, 8, 16) if w != usual.warps]
    found = [replace(usual, warps=w) for w in warps if abs(w.bit_length() - usual.warps.bit_length()) == 1]
    if usual.y is not None:
        return [*found, replace(usual, x_block=64, y_block=16), replace(usual, x_block=16, y_block=64)]
    for factor in (2, 4):
        found.append(replace(usual, x_block=usual.x_block * factor))
        found.append(replace(usual, x_block=usual.x_block * factor, warps=min(16, usual.warps * factor)))
        if usual.x_block >= factor:
            found.append(replace(usual, x_block=usual.x_block // factor))
    if not usual.persistent:
        found += [replace(usual, r_block=usual.r_block * 2), replace(usual, r_block=usual.r_block // 2)]
        found += [replace(usual, r_block=usual.r_block // 2, ahead=stages) for stages in (3, 4)]
        wider = [
            (usual.x_block * n, usual.r_block // n) for n in (2, 4) if usual.x_block > 1 and usual.r_block >= 4 * n
        ]
        found += [replace(usual, x_block=x, r_block=r) for x, r in wider]
    return found


SHARED_BYTES = 227 << 10
"""What a program of compute capability 9.0 may have."""
PRODUCT_TILES: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (256, 64, 64, 8, 3), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4), (32, 64, 128, 4, 4), (16, 64, 128, 4, 5), (16, 128, 128, 4, 4),
)  # fmt: skip
"""Rows, columns and shared size of a tile, warps, stages: for measuring."""
NARROW_TILES = ((256, 8, 3), (128, 4, 3), (64, 4, 4))
"""Of products with few columns, as groups of a convolution have: rows, warps, stages. On an H200, the groups of 24 channels of a RegNet take a
third of the time in tiles of 256 rows as in those of 64."""


def product_tilings(kernel: Kernel, shared_bytes: int = SHARED_BYTES) -> list[Tiling]:
    """How a kernel with a matrix product may be cut: tiles that are not much larger than the product is, whose factors fit the
    memory that threads share."""
    product, rows = kernel.product, kernel.outer[-2]
    assert product is not None
    rows_limit, columns_limit = max(power_of_two(product.rows), 16), max(power_of_two(product.columns), 16)
    item_bytes = product.dtype.itemsize
    longest = max(power_of_two(product.longest_step), 16)
    fitting = [
        (y, x, k, warps, stages)
        for y, x, k, warps, stages in ((y, x, min(k, longest), w, s) for y, x, k, w, s in PRODUCT_TILES)
        if y <= rows_limit and x <= columns_limit and (y + x) * k * stages * item_bytes <= shared_bytes
    ]
    if columns_limit < 64:
        fitting += [(y, columns_limit, min(64, longest), w, s) for y, w, s in NARROW_TILES if y <= rows_limit]
    if not fitting:
        fitting = [(rows_limit, min(columns_limit, 64), min(64, longest), 4, 4)]
    return [Tiling(x, warps=w, y=rows, y_block=y, k_block=k, stages=s) for y, x, k, w, s in dict.fromkeys(fitting)]


def power_of_two(number: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << max(number - 1, 0).bit_length()


def persistent(outer: Dimensions, inner: Dimensions, across: Sequence[LoopInstruction]) -> bool:
    """Are all inner points in one tile? A running reduction needs them there; columns side by side want wide tiles instead."""
    elements = count(inner).value
    if elements is None or elements > LONGEST_ROW:
        return False
    upright = elements > LONGEST_COLUMN and columns(outer, inner, across)
    return not upright or any(isinstance(i, Scan) for i in across)


def tiling_of(kernel: Kernel, processors: int) -> Tiling:
    """The usual choice."""
    if kernel.product is not None:
        return product_tilings(kernel)[0]
    points = count(kernel.outer).value
    points = TYPICAL_COUNT if points is None else points
    if not kernel.inner:
        return _pointwise(kernel, points, processors)
    across = [i for p in kernel.phases if p.across for _, i in p.lines]
    if kernel.scratch or persistent(kernel.outer, kernel.inner, across):  # what it keeps to itself is in registers
        return _persistent(kernel, points, processors)
    return _looped(kernel, points, processors)


def _pointwise(kernel: Kernel, points: int, processors: int) -> Tiling:
    lines = [i for p in kernel.phases for _, i in p.lines]
    crossed = crossing(kernel.outer, lines)
    if crossed is not None:
        high = min(32, power_of_two(crossed.size.value or 32))
        wide = min(1024 // high, max(power_of_two(kernel.outer[-1].size.value or 1024), 32))
        return Tiling(wide, warps=4, y=crossed, y_block=high)
    each = DRAWN_EACH if any(isinstance(i, Apply) and i.operation == "philox" for i in lines) else 8
    block = 4 * LANES * each
    while block > 128 and points < block * processors * 2:
        block //= 2
    return Tiling(min(block, max(power_of_two(points), 32)), warps=max(1, min(4, block // (LANES * each))))


DRAWN_EACH = 16
"""Elements of a lane that draws random numbers for them: what calls of the generator share takes as long as some of them. On an H200,
dropout takes 36.2 us, with eight 40.9."""


def _persistent(kernel: Kernel, points: int, processors: int) -> Tiling:
    row = power_of_two(max(count(kernel.inner).value or 1, 1))
    if _columns(kernel):
        x = min(power_of_two(points), max(1, 4096 // row), 64)
        return Tiling(max(x, 1), row, warps=_warps(x * row))
    x = max(1, 1024 // row)
    if _crossed_by_rows(kernel):
        x = max(x, min(SIDE_BY_SIDE, LONGEST_ROW // row))
    while x > 1 and points < x * processors * 4:
        x //= 2
    if points == 1:
        warps = _all_warps(row)
    elif points >= processors and not _writes_rows(kernel):
        warps = _few_warps(x * row, _read_bytes(kernel)) if _waits_often(kernel) else _warps(x * row, each=32)
    else:
        warps = _warps(x * row)
    return Tiling(min(x, power_of_two(points)), row, warps=warps)


def _crossed_by_rows(kernel: Kernel) -> bool:
    """Is there memory that neighbouring rows share, because a row jumps over what lies beside its elements?"""
    lines = [i for p in kernel.phases if p.across for _, i in p.lines]
    return bool(kernel.outer) and any(_crosses(i, kernel.outer[-1], kernel.inner[-1]) for i in lines)


def _looped(kernel: Kernel, points: int, processors: int) -> Tiling:
    if _columns(kernel):
        x = max(NARROWEST, min(COLUMN_TILE, power_of_two(points // processors)))
        longest = max(len(phase.lines) for phase in kernel.phases if phase.across)
        elements = 8192 if longest <= LIGHT else 4096
        return Tiling(x, max(16, elements // x), persistent=False, warps=8)
    return Tiling(1, 4096 if points < processors * 8 else 2048, persistent=False, warps=8)


def _writes_rows(kernel: Kernel) -> bool:
    """Does it write along its inner loops, or only what they sum up to?"""
    return any(isinstance(i, Store) and p.across for p in kernel.phases for _, i in p.lines)


def _read_bytes(kernel: Kernel) -> int:
    """What a point of the inner loops reads."""
    inner = {d.symbol for d in kernel.inner}
    lines = [i for p in kernel.phases if p.across for _, i in p.lines]
    read = {
        (i.buffer, i.index): i.dtype.itemsize for i in lines if isinstance(i, Load) and free_symbols(i.index) & inner
    }
    return sum(read.values())


def _waits_often(kernel: Kernel) -> bool:
    """Do warps wait for each other more than once, or for what takes long?"""
    found = [i for p in kernel.phases for _, i in p.lines if isinstance(i, (Reduce, Scan))]
    return len(found) > 1 or any(isinstance(i, Reduce) and i.kind.startswith("arg") for i in found)


def _warps(elements: int, each: int = 16) -> int:
    """About eight elements a lane, and `each` in large tiles."""
    return max(1, min(16, power_of_two(elements // 256), power_of_two(max(elements // (LANES * each), 4))))


def _few_warps(elements: int, element_bytes: int) -> int:
    """Of many tiles that write none: fewer warps wait for each other. A lane holds what it reads."""
    held = power_of_two(elements * element_bytes // (LANES * HELD_BYTES))
    return max(1, min(16, power_of_two(elements // 256), max(held, 2)))


HELD_BYTES = 128
"""What a lane reads of a row before it computes."""


def _all_warps(elements: int) -> int:
    """Of a tile that is alone on the device: nothing else hides its waits."""
    return max(1, min(MOST_WARPS, power_of_two(elements // 256)))


def _columns(kernel: Kernel) -> bool:
    return columns(kernel.outer, kernel.inner, [i for p in kernel.phases if p.across for _, i in p.lines])


def columns(outer: Dimensions, inner: Dimensions, across: Sequence[LoopInstruction]) -> bool:
    """Is more memory walked along by the last outer loop than by the last inner one? What changes with one of them only is little."""
    if not outer or not inner:
        return False
    ends = {outer[-1].symbol, inner[-1].symbol}
    indices = [i.index for i in across if isinstance(i, (Load, Store)) and ends <= free_symbols(i.index)]
    by_outer, by_inner = (sum(walks(index, loop) for index in indices) for loop in (outer[-1], inner[-1]))
    return by_outer > by_inner


MOST_WARPS = 32
"""Of a program, on every device."""
LIGHT = 8
"""Instructions of a loop up to which a lane has registers for 32 elements; half as many beyond."""
NARROWEST, COLUMN_TILE = 16, 128
"""Neighbouring results that one program makes when their memory is side by side: where there are few of them, and many."""
PROGRAMS_EACH = 4
"""Programs for each multiprocessor below which a reduction is made in pieces."""


def pieces(outer: Dimensions, inner: Dimensions, body: Sequence[LoopInstruction], *, processors: int) -> int:
    """In how many pieces a reduction keeps the device busy. A piece is long enough to be worth a program."""
    points, row = count(outer).value, count(inner).value
    row = TYPICAL_COUNT if row is None else row
    if points is None or not points:
        return 1
    upright = columns(outer, inner, body)
    programs, shortest = (points / COLUMN_TILE, 64) if upright else (float(points), 1024)
    wanted = processors * PROGRAMS_EACH
    least_work = row * min(points, COLUMN_TILE) < LEAST_COLUMNS if upright else row <= LONGEST_ROW
    if programs * 2 > wanted or row < 2 * shortest or least_work:
        return 1  # it is busy enough, or a second kernel would take longer to start than the row takes
    return max(1, min(int(wanted / programs), row // shortest))


LEAST_COLUMNS = 1 << 16
"""Elements of columns side by side below which a program reduces them in less time than another kernel takes to start."""


SMALLEST_SIDE, SMALLEST_HEIGHT = 16, 8
"""Loops that run less often than this are no axis of their own: the last one, and the one that is walked along elsewhere."""


def crossing(outer: Dimensions, lines: list[LoopInstruction]) -> Dimension | None:
    """The loop along which some memory is walked that the last loop jumps over."""
    if len(outer) < 2:
        return None
    least = (SMALLEST_HEIGHT, SMALLEST_SIDE)
    return most_crossed(outer, lambda loop, last: sum(_crosses(i, loop, last) for i in lines), least)


def _crosses(i: LoopInstruction, loop: Dimension, last: Dimension) -> bool:
    if not isinstance(i, (Load, Store)) or is_computed(i.index):
        return False
    along, jump = coefficient(i.index, loop.symbol), coefficient(i.index, last.symbol)
    return along is not None and jump is not None and along.value == 1 and jump.value not in (0, 1)
