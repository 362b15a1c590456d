"""Windows along one dimension of an image: which elements a window holds, and which windows hold an element.

An axis answers for a window's position or an element's, both expressions; conditions are values, so `ops` must have a meaning. The
second question is the gradient's: each element gathers from the windows it is in, and nothing is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.loop.body import LoopValue
from stoker.lower.move import at_least, less
from stoker.shape.expr import Expr, constant, maximum, minimum

ZERO = constant(0)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size at a constant distance; they may begin in the padding and reach beyond the image."""

    image: Expr
    windows: Expr
    size: int
    stride: int
    padding: int = 0
    dilation: int = 1

    @property
    def most(self) -> int:
        """Elements of the largest window."""
        return self.size

    def start(self, window: Expr) -> Expr:
        return window * self.stride - self.padding

    def first(self, window: Expr) -> Expr:
        """The first element that lies in the image."""
        return maximum(self.start(window), ZERO)

    @property
    def even(self) -> bool:
        """Are all windows of one size, and in the image?"""
        return not self.padding and self._reaches_at_most(0)

    def nearest(self, window: Expr, offset: Expr) -> Expr:
        """An element of a window, or the one of its elements that is nearest."""
        place = self.start(window) + offset * self.dilation
        if self.padding:
            place = maximum(place, ZERO)
        return place if self._reaches_at_most(0) else minimum(place, self.image - 1)

    def element(self, window: Expr, offset: Expr) -> tuple[Expr, list[LoopValue]]:
        """An element of a window, and the conditions that it lies in the image."""
        place = self.start(window) + offset * self.dilation
        tests = [at_least(place, ZERO)] if self.padding else []
        return place, tests if self._reaches_at_most(0) else [*tests, less(place, self.image)]

    def _reaches_at_most(self, beyond: int) -> bool:
        """Does no window reach further beyond the image's end?"""
        if self.image.value is None or self.windows.value is None:
            return False
        last = (self.windows.value - 1) * self.stride - self.padding + (self.size - 1) * self.dilation
        return last < self.image.value + beyond

    def count(self, window: Expr, *, padded: bool) -> Expr:
        """How many elements a window has, those in the padding (but none beyond it) counted or not."""
        start = self.start(window)
        if padded:
            if self._reaches_at_most(self.padding):
                return constant(self.size)
            return minimum(start + self.size, self.image + self.padding) - start
        return minimum(start + self.size, self.image) - maximum(start, ZERO)

    @property
    def most_holding(self) -> int:
        """Windows that hold one element, at most."""
        return -(-self.size // self.stride)

    def holding(self, element: Expr, number: int) -> tuple[Expr, list[LoopValue]]:
        """One of the windows that may hold an element, and the conditions that it exists and does."""
        last = (element + self.padding) // self.stride
        window = last - number
        tests = [at_least(window, ZERO)] if number else []
        if self.size % self.stride:
            tests.append(less(element + self.padding - window * self.stride, constant(self.size)))
        reach = None if self.image.value is None else (self.image.value - 1 + self.padding) // self.stride - number
        if reach is None or self.windows.value is None or reach >= self.windows.value:
            tests.append(less(window, self.windows))
        return window, tests


@dataclass(frozen=True, slots=True)
class Adaptive:
    """As many windows as wanted, each from floor(w * image / windows) to ceil((w + 1) * image / windows)."""

    image: int
    windows: int

    @property
    def most(self) -> int:
        return max(_end(w, self.image, self.windows) - w * self.image // self.windows for w in range(self.windows))

    def first(self, window: Expr) -> Expr:
        return (window * self.image) // self.windows

    def count(self, window: Expr, *, padded: bool = False) -> Expr:
        if self.even:
            return constant(self.image // self.windows)
        return ((window + 1) * self.image + self.windows - 1) // self.windows - self.first(window)

    @property
    def even(self) -> bool:
        return self.image % self.windows == 0

    def nearest(self, window: Expr, offset: Expr) -> Expr:
        if self.even:
            return self.first(window) + offset
        return self.first(window) + minimum(offset, self.count(window) - 1)

    def element(self, window: Expr, offset: Expr) -> tuple[Expr, list[LoopValue]]:
        return self.first(window) + offset, [] if self.even else [less(offset, self.count(window))]

    @property
    def most_holding(self) -> int:
        return max(_end(i, self.windows, self.image) - i * self.windows // self.image for i in range(self.image))

    def holding(self, element: Expr, number: int) -> tuple[Expr, list[LoopValue]]:
        first = (element * self.windows) // self.image
        end = ((element + 1) * self.windows + self.image - 1) // self.image
        window = first + number
        return window, [less(window, end)] if number else []


def _end(position: int, size: int, parts: int) -> int:
    return -(-(position + 1) * size // parts)


Axis = Sliding | Adaptive
