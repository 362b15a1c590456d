"""The translation units of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.codegen.cpp.kernel import emit_marked
from stoker.codegen.cpp.share import share
from stoker.codegen.cpp.tiles import USUAL, Tiles
from stoker.schedule.kernel import Kernel

HEADERS = ("header.h", "math.h", "tile.h", "moments.h")
"""What generated sources begin with, in order."""
HEADER = "\n".join((Path(__file__).parent / name).read_text() for name in HEADERS)


PIECES_PER_UNIT = 8
"""A plan with more of them is split, so that several compilers work at once."""


@dataclass(frozen=True, slots=True)
class Units:
    """Sources, and which of them holds each kernel."""

    sources: list[str]
    holder: list[int]
    lengths: list[int]
    """Characters of each kernel; of one that is shared, its part."""

    @property
    def numbers(self) -> range:
        return range(len(self.sources))


def units_of(kernels: Sequence[Kernel], most: int, tiles: Tiles = USUAL) -> Units:
    """Kernels as C++ sources that include nothing of ours: one, or up to `most` when there are many kernels.

    The compiler takes about as long for a source as that is long, so each piece goes where there is least, the longest first.
    """
    names = [kernel_name(number) for number in range(len(kernels))]
    pieces = share({name: emit_marked(name, kernel, tiles) for name, kernel in zip(names, kernels)})
    count = max(1, min(most, len(pieces) // PIECES_PER_UNIT))
    held: list[list[int]] = [[] for _ in range(count)]
    length = [0] * count
    holder: dict[str, int] = {}
    characters: dict[str, int] = {}
    for number in sorted(range(len(pieces)), key=lambda n: (-len(pieces[n].text), n)):
        unit = length.index(min(length))
        held[unit].append(number)
        length[unit] += len(pieces[number].text)
        inside = pieces[number].kernels
        holder |= dict.fromkeys(inside, unit)
        characters |= dict.fromkeys(inside, len(pieces[number].text) // len(inside))
    prelude = _PRELUDE if tiles.vector_bits == USUAL.vector_bits else _NARROW.format(tiles.vector_bits) + _PRELUDE
    sources = ["\n".join((prelude, *(pieces[number].text for number in sorted(unit)))) for unit in held]
    held_by, lengths = [holder[name] for name in names], [characters[name] for name in names]
    return Units(sources if pieces else [], held_by, lengths)


_NARROW = '#pragma GCC target("prefer-vector-width={}")\n'
_PRELUDE = HEADER.replace("#pragma once\n", "")


def kernel_name(number: int) -> str:
    return f"kernel_{number}"
