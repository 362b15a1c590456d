"""A graph that a compiler has begun to compile: its kernels are being built while others are prepared.

In:  what a compiler returned for a graph.
Out: the compiled graph, once it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Begun:
    """To finish is to wait for what is being built; once."""

    finish: Callable[[], Callable[..., Any]]


def finished(compiled: Callable[..., Any] | Begun) -> Callable[..., Any]:
    """The compiled graph."""
    return compiled.finish() if isinstance(compiled, Begun) else compiled
