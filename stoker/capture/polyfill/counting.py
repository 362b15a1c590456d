"""Dictionaries filled by keys (`dict.fromkeys`, collections.Counter), and the counting functions of operator."""

from __future__ import annotations

from typing import Any


def from_keys(cls: Any, iterable: Any, value: Any = None, /) -> Any:
    made = cls()
    for key in iterable:
        made[key] = value
    return made


def count_elements(mapping: Any, iterable: Any) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def count_of(iterable: Any, wanted: Any) -> int:
    total = 0
    for element in iterable:
        if element is wanted or element == wanted:
            total += 1
    return total


def index_of(iterable: Any, wanted: Any) -> int:
    for position, element in enumerate(iterable):
        if element is wanted or element == wanted:
            return position
    raise ValueError("sequence.index(x): x not in sequence")
