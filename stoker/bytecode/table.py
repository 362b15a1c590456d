"""The two packed tables beside the bytes of a code object: who handles an exception, and where the source is.

Both count in code units of two bytes. Formats: CPython's Objects/exception_handling_notes.txt and
Objects/locations.md (3.11 and later; the formats are the same on all supported versions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .instruction import Positions


class Range(NamedTuple):
    """One exception-table entry: exceptions raised in units [start, end) go to unit `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


# The first byte of an exception-table entry carries 0x80, so that a binary search can find entry starts. Numbers are
# written in groups of six bits, most significant first; 0x40 says that another group follows.


def read_exception_table(table: bytes) -> list[Range]:
    """The entries of a `co_exceptiontable`."""
    numbers = _read_big_endian(table)
    return [
        Range(start, start + length, target, packed >> 1, bool(packed & 1))
        for start, length, target, packed in zip(numbers, numbers, numbers, numbers)
    ]


def _read_big_endian(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            yield number
            number = 0


def write_exception_table(ranges: Iterable[Range]) -> bytes:
    """The inverse of read_exception_table."""
    table = bytearray()
    for start, end, target, depth, lasti in ranges:
        first = len(table)
        for number in (start, end - start, target, depth << 1 | lasti):
            _write_big_endian(table, number)
        table[first] |= 128
    return bytes(table)


def _write_big_endian(table: bytearray, number: int) -> None:
    shift = 0
    while number >> shift > 63:
        shift += 6
    while shift:
        table.append(number >> shift & 63 | 64)
        shift -= 6
    table.append(number & 63)


# A location entry opens with 0x80, four bits for its form and three for the units it covers, less one. Lines are
# relative to the entry before. Numbers are least significant group first; signed ones keep their sign in bit 0.

_ONE_LINE, _NO_COLUMNS, _LONG, _NOWHERE = 10, 13, 14, 15
_UNITS_OF_AN_ENTRY = 8


def write_location_table(first_line: int, runs: Iterable[tuple[int, Positions | None]]) -> bytes:
    """The `co_linetable` for runs of (code units, positions)."""
    table = bytearray()
    line = first_line
    for units, positions in runs:
        while units > 0:
            form, tail = _NOWHERE, b""
            if positions is not None:
                form, tail = _location(positions, line)
                line = positions.lineno
            length = min(units, _UNITS_OF_AN_ENTRY)
            table.append(128 | form << 3 | length - 1)
            table += tail
            units -= length
    return bytes(table)


def _location(positions: Positions, previous_line: int) -> tuple[int, bytes]:
    """The shortest form for a position, and the bytes after its first."""
    line, end_line, column, end_column = positions
    delta = line - previous_line
    if column is None or end_column is None:
        if end_line is None or end_line == line:
            return _NO_COLUMNS, _signed(delta)
    elif end_line == line:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            return column >> 3, bytes(((column & 7) << 4 | end_column - column,))
        if 0 <= delta <= 2 and column < 128 and end_column < 128:
            return _ONE_LINE + delta, bytes((column, end_column))
    lines = _signed(delta) + _unsigned(0 if end_line is None else end_line - line)
    columns = (0 if number is None else number + 1 for number in (column, end_column))
    return _LONG, lines + b"".join(map(_unsigned, columns))


def _unsigned(number: int) -> bytes:
    if number < 64:
        return bytes((number,))
    groups = bytearray()
    while number > 63:
        groups.append(number & 63 | 64)
        number >>= 6
    groups.append(number)
    return bytes(groups)


def _signed(number: int) -> bytes:
    return _unsigned(-number << 1 | 1 if number < 0 else number << 1)
