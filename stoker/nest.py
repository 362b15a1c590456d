"""Lists, tuples and dictionaries inside each other: what lies at their ends.

>>> leaves([1, (2, {"k": 3}), []])
[1, 2, 3]
>>> map_leaves(lambda number: -number, [1, (2, {"k": 3})])
[-1, (-2, {'k': -3})]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def leaves(value: Any) -> list[Any]:
    """What is no list, tuple or dictionary, in order."""
    found: list[Any] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Any]) -> None:
    if isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, found)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, found)
    else:
        found.append(value)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nest with `function` of each leaf. Subclasses of list and tuple, such as named tuples, become plain."""
    if isinstance(value, tuple):
        return tuple([map_leaves(function, part) for part in value])
    if isinstance(value, list):
        return [map_leaves(function, part) for part in value]
    if type(value) is dict:
        return {key: map_leaves(function, part) for key, part in value.items()}
    return function(value)
