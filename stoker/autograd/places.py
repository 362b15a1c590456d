"""Where in the user's program a traced operator comes from, forward and backward.

In:  the location of each captured node as it starts to run.
Out: the location of an operator that is being traced. In the backward it is that of the forward operator whose
     gradient is being computed: autograd numbers its nodes in the order they are made, so the numbers tell.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from stoker import torch_private


class Places:
    """Locations by the first autograd number that belongs to them."""

    def __init__(self) -> None:
        self._location: Any = None
        self.recompute: dict[str, Any] = {}
        """What nodes are marked with there: that the user wants them computed again, and in which checkpoint."""
        self._numbers: list[int] = []
        self._locations: list[Any] = []

    def enter(self, location: Any, recompute: dict[str, Any]) -> None:
        """The program is at `location` from here on, and what it computes there is marked with `recompute`."""
        self._location, self.recompute = location, recompute
        self._numbers.append(torch_private.next_sequence_number())
        self._locations.append(location)

    def current(self, phase: str) -> Any:
        """The location of the operator that is being traced."""
        if phase == "forward":
            return self._location
        node = torch_private.current_autograd_node()
        if node is None:
            return None
        found = bisect_right(self._numbers, torch_private.sequence_number(node)) - 1
        return self._locations[found] if found >= 0 else None
