"""A graph that a compiler has begun to compile: its kernels are being built while others are prepared.

In:  what a compiler returned for a graph.
Out: the compiled graph, once it is needed: that of a backward when it is first called, so that its kernels are built while the forward runs.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from stoker.collector import collector_paused


@dataclass(frozen=True, slots=True)
class Begun:
    """To finish is to wait for what is being built; once."""

    finish: Callable[[], Callable[..., Any]]
    can_wait: bool = False
    """May a backward be finished in the middle of the program, where autograd first calls it? Then it only waits, and measures nothing."""


class Awaited:
    """A compiled backward that is waited for when it is first called. What fails then fails again."""

    _boxed_call = True

    def __init__(self, begun: Begun) -> None:
        self.begun = begun
        self.compiled: Callable[..., Any] | None = None
        _awaited.add(self)

    def wait(self) -> Callable[..., Any]:
        if self.compiled is None:
            with torch.inference_mode(False), torch.no_grad(), collector_paused():
                self.compiled = self.begun.finish()
        return self.compiled

    def __call__(self, arguments: list[Any]) -> Any:
        compiled = self.compiled or self.wait()
        return compiled(arguments) if getattr(compiled, "_boxed_call", False) else compiled(*arguments)


_awaited: weakref.WeakSet[Awaited] = weakref.WeakSet()


@contextlib.contextmanager
def awaiting() -> Iterator[None]:
    """Wait for what is begun inside, for who wants to tell of it."""
    known = list(_awaited)
    yield
    for one in list(_awaited):
        if not any(one is other for other in known):
            one.wait()


def finished(compiled: Callable[..., Any] | Begun) -> Callable[..., Any]:
    """The compiled graph."""
    return compiled.finish() if isinstance(compiled, Begun) else compiled
