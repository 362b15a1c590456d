"""heapq and bisect, in Python: the same comparisons in the same order, so that heaps lie as those of the C functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Less = Callable[[Any, Any], bool]


def _less(a: Any, b: Any) -> bool:
    return a < b


def _greater(a: Any, b: Any) -> bool:
    return b < a


def _rise(heap: list[Any], top: int, place: int, before: Less) -> None:
    """Move an element towards the top, past all that belong behind it."""
    item = heap[place]
    while place > top:
        parent = (place - 1) // 2
        if not before(item, heap[parent]):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _sink(heap: list[Any], top: int, before: Less) -> None:
    """Fill a place from below down to a leaf, and let what was in it rise from there."""
    place, item, size = top, heap[top], len(heap)
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and not before(heap[child], heap[child + 1]):
            child += 1
        heap[place] = heap[child]
        place = child
    heap[place] = item
    _rise(heap, top, place, before)


def _heapify(heap: list[Any], before: Less) -> None:
    for place in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, place, before)


def _pop(heap: list[Any], before: Less) -> Any:
    _refuse_empty(heap)
    last = heap.pop()
    if not heap:
        return last
    found, heap[0] = heap[0], last
    _sink(heap, 0, before)
    return found


def _refuse_empty(heap: list[Any]) -> None:
    if not heap:
        raise IndexError("index out of range")


def _replace(heap: list[Any], item: Any, before: Less) -> Any:
    _refuse_empty(heap)
    found, heap[0] = heap[0], item
    _sink(heap, 0, before)
    return found


def heappush(heap: list[Any], item: Any, /) -> None:
    heap.append(item)
    _rise(heap, 0, len(heap) - 1, _less)


def heappushpop(heap: list[Any], item: Any, /) -> Any:
    return _replace(heap, item, _less) if heap and heap[0] < item else item


def heapify(heap: list[Any], /) -> None:
    _heapify(heap, _less)


def heappop(heap: list[Any], /) -> Any:
    return _pop(heap, _less)


def heapreplace(heap: list[Any], item: Any, /) -> Any:
    return _replace(heap, item, _less)


def heapify_max(heap: list[Any], /) -> None:
    _heapify(heap, _greater)


def heappop_max(heap: list[Any], /) -> Any:
    return _pop(heap, _greater)


def heapreplace_max(heap: list[Any], item: Any, /) -> Any:
    return _replace(heap, item, _greater)


def _bounds(a: Any, lo: int, hi: int | None) -> tuple[int, int]:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    return lo, len(a) if hi is None else hi


def bisect_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    lo, hi = _bounds(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    lo, hi = _bounds(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def insort_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)
