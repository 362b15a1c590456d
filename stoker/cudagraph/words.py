"""Which parameters of a recorded graph hold the address of an input, found by recording twice.

In:  the nodes of two recordings of one plan, whose inputs lie at different places, and these places.
Out: for each input the words that must follow it when it moves; or that it has none that can be trusted.

A word belongs to an input if it points into it in both recordings, equally far, and into no other. A value that merely looks like an
address of the first recording does not point to the same place of the second.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stoker.cudagraph.driver import GraphNode

RECORD = -1
"""In place of a parameter's number: the word stands in the node's record."""
WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Region:
    """Memory of an input in two recordings."""

    first: int
    second: int
    size: int

    def delta(self, first: int, second: int) -> int | None:
        """How far into it two words point, if both do; its end counts."""
        delta = first - self.first
        return delta if 0 <= delta <= self.size and second - self.second == delta else None

    def holds(self, first: int) -> bool:
        return 0 <= first - self.first <= self.size


@dataclass(frozen=True, slots=True)
class Word:
    """An address: in a parameter of a node (or its record), and how far into the input it points."""

    node: int
    buffer: int
    offset: int
    delta: int


@dataclass(frozen=True, slots=True)
class FoundWords:
    """Words by input, and why an input has none."""

    words: Mapping[int, tuple[Word, ...]]
    refused: Mapping[int, str]


def find_words(first: Sequence[GraphNode], second: Sequence[GraphNode], regions: Mapping[int, Region]) -> FoundWords:
    """The words of each input in the nodes of the first recording."""
    why = _different(first, second)
    if why is not None:
        return FoundWords({}, dict.fromkeys(regions, why))
    words: dict[int, list[Word]] = {number: [] for number in regions}
    refused: dict[int, str] = {}
    for position, (one, other) in enumerate(zip(first, second)):
        for buffer, offset, a, b in _pairs(one, other):
            here = f"parameter {buffer} of node {position}"
            found = {number: delta for number, r in regions.items() if (delta := r.delta(a, b)) is not None}
            for number, delta in found.items():
                words[number].append(Word(position, buffer, offset, delta))
            if len(found) > 1:
                refused |= dict.fromkeys(found, f"{here} may be of two inputs")
            for number, region in regions.items():
                if number not in found and region.holds(a) and a != b:
                    refused[number] = f"{here} points into it in one of two recordings only"
    return FoundWords({n: tuple(w) for n, w in words.items() if n not in refused}, refused)


def _different(first: Sequence[GraphNode], second: Sequence[GraphNode]) -> str | None:
    """Why two recordings cannot be compared; None if they can."""
    if len(first) != len(second):
        return f"two recordings have {len(first)} and {len(second)} nodes"
    for position, (one, other) in enumerate(zip(first, second)):
        if one.kind == "opaque":
            return f"node {position} cannot be looked into"
        if one.kind != other.kind or [*map(len, one.parameters)] != [*map(len, other.parameters)]:
            return f"node {position} differs in two recordings"
    return None


def _pairs(one: GraphNode, other: GraphNode) -> Iterator[tuple[int, int, int, int]]:
    """Words at the same place of two nodes: parameter, offset, and both values. Kernels have theirs in parameters alone."""
    parts = list(enumerate(zip(one.parameters, other.parameters)))
    if one.kind != "kernel":
        parts.append((RECORD, (one.record, other.record)))
    for buffer, (a, b) in parts:
        for offset in range(0, len(a) - WORD_BYTES + 1, WORD_BYTES):
            (left,), (right,) = struct.unpack_from("<Q", a, offset), struct.unpack_from("<Q", b, offset)
            yield buffer, offset, left, right
