"""What recording needs of CUDA.

`stoker.cudagraph.cuda` is the real thing; tests/unit/cudagraph has a stand-in that records programs of the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a recorded graph, as the driver describes it."""

    kind: str
    """`kernel`, `copy`, `fill`, or `opaque` for one that cannot be looked into."""
    handle: int
    set: int = 0
    """The address of the driver's function that changes such a node of an instantiated graph."""
    context: int = 0
    record: bytes = b""
    """The driver's structure."""
    parameters: tuple[bytes, ...] = ()
    """A kernel's parameters; or the one buffer that holds them all, if `extra`."""
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Instantiated:
    """A graph, instantiated."""

    launch: Callable[[], object] | None
    """Starts it on the current stream, random numbers advanced as by its operators. None: the driver may start it as it is."""
    executable: int
    nodes: tuple[GraphNode, ...]
    owner: object = None
    """Frees it."""


class CannotRecord(Exception):
    """The driver or an operator refused; the words say why."""


class Driver(Protocol):
    """What recording needs of a device."""

    def capture(self, run: Callable[[], tuple[Any, ...]]) -> tuple[Instantiated, tuple[Any, ...]]:
        """Record what `run` starts, without doing it. Its results lie in memory that is the recording's own."""

    def stream(self) -> int:
        """The stream that operators use now."""

    def is_capturing(self) -> bool:
        """Is the user recording just now?"""

    def synchronize(self) -> None: ...

    def random_state_kept(self) -> AbstractContextManager[None]:
        """Random numbers drawn inside are drawn again after it."""
