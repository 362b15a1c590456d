"""functools.reduce, math.prod and functools.cmp_to_key."""

from __future__ import annotations

from typing import Any


def reduce(function: Any, iterable: Any, *initial: Any) -> Any:
    iterator = iter(iterable)
    if initial:
        (total,) = initial
    else:
        try:
            total = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    for element in iterator:
        total = function(total, element)
    return total


def prod(iterable: Any, start: Any) -> Any:
    total = start
    for element in iterable:
        total = total * element
    return total


class Ranked:
    """What `cmp_to_key(compare)` makes of an object."""

    __slots__ = ("compare", "obj")

    def __init__(self, compare: Any, obj: Any) -> None:
        self.compare, self.obj = compare, obj

    def __lt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) >= 0

    __hash__ = None  # type: ignore[assignment]  # how Python says unhashable
