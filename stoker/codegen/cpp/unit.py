"""The translation unit of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoker.codegen.cpp.kernel import emit
from stoker.codegen.cpp.tiles import USUAL, Tiles
from stoker.schedule.kernel import Kernel

HEADERS = ("header.h", "math.h", "tile.h", "moments.h")
"""What generated sources begin with, in order."""
HEADER = "\n".join((Path(__file__).parent / name).read_text() for name in HEADERS)


KERNELS_PER_UNIT = 8
"""A plan with more kernels is split, so that several compilers work at once."""


def sources_of(kernels: Sequence[Kernel], most: int, tiles: Tiles = USUAL) -> list[str]:
    """Kernels as C++ sources that include nothing of ours: one, or up to `most` when there are many kernels."""
    texts = [emit(kernel_name(number), kernel, tiles) for number, kernel in enumerate(kernels)]
    count = max(1, min(most, len(texts) // KERNELS_PER_UNIT))
    prelude = _PRELUDE if tiles.vector_bits == USUAL.vector_bits else _NARROW.format(tiles.vector_bits) + _PRELUDE
    return ["\n".join((prelude, *texts[part::count])) for part in range(count)] if texts else []


_NARROW = '#pragma GCC target("prefer-vector-width={}")\n'
_PRELUDE = HEADER.replace("#pragma once\n", "")


def kernel_name(number: int) -> str:
    return f"kernel_{number}"


def unit_of(number: int, units: int) -> int:
    """Which source holds a kernel."""
    return number % units
