"""What the captured code changed: remembered while evaluating, replayed after the graph ran.

In:  mutations of values that existed before the call; calls whose only point is their effect (print).
Out: the list of values to write back, in the order of their first change, and deferred calls in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker.capture.values.value import Era, Value
from stoker.errors import EffectInside


class Effects:
    """Changes to replay, in order."""

    def __init__(self) -> None:
        self.mutated: dict[int, Value] = {}
        self.deferred: list[tuple[Value, list[Value], dict[str, Value]]] = []
        self.first: list[tuple[Callable[..., Any], list[Value]]] = []  # calls that are made before the graph runs
        self.drawn: dict[int, Any] = {}  # what was done to generators so far, by their identity
        self.references: list[Any] = []  # weak references to objects that captured code made
        self.died: list[int] = []  # when such an object went away, of those with a callback
        self.seeds: dict[Value, Value | None] = {}  # of torch's generators; one stands for the seed that it had before
        self.seeds_of_states: dict[int, Value | None] = {}  # by the number of what a state holds
        self.noticed = 0  # how often something was changed, or looked at that captured code has changed before

    def will_mutate(self, value: Value) -> None:
        """Call before changing a value. New objects are rebuilt whole; only known ones are written back."""
        self.noticed += 1
        if Era.now:
            self._refuse_in_subgraph(value)
        if value.source is not None or getattr(value, "root_name", None) is not None:
            self.mutated.setdefault(id(value), value)

    def _refuse_in_subgraph(self, value: Value) -> None:
        """What a branch or a loop changes of what was there before, the graph cannot do each time it runs."""
        if value.era < Era.now or value.source is not None or value.root_name is not None:
            raise EffectInside(
                "a change in a branch or loop",
                f"{value.describe()} was made outside of it",
                "return what changes, as a tensor",
            )

    def defer(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
        """A call that nothing in the graph can observe: made after the graph, in order."""
        self.noticed += 1
        if Era.now:
            raise EffectInside(
                "an effect in a branch or loop", f"{function.describe()} is called each time it runs", "do it outside"
            )
        self.deferred.append((function, args, kwargs))
