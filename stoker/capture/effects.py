"""What the captured code changed: remembered while evaluating, replayed after the graph ran.

In:  mutations of values that existed before the call; calls whose only point is their effect (print).
Out: the list of values to write back, in the order of their first change, and deferred calls in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.capture.values.value import Value

if TYPE_CHECKING:
    pass


class Effects:
    """Changes to replay, in order."""

    def __init__(self) -> None:
        self.mutated: dict[int, Value] = {}
        self.deferred: list[tuple[Value, list[Value], dict[str, Value]]] = []

    def will_mutate(self, value: Value) -> None:
        """Call before changing a value. New objects are rebuilt whole; only known ones are written back."""
        if value.source is not None or getattr(value, "root_name", None) is not None:
            self.mutated.setdefault(id(value), value)

    def defer(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
        """A call that nothing in the graph can observe: made after the graph, in order."""
        self.deferred.append((function, args, kwargs))
