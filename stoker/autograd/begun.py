"""A graph that a compiler has begun to compile: its kernels are being built while others are prepared.

In:  what a compiler returned for a graph.
Out: the compiled graph, once it is needed: that of a backward when it is first called, so that its kernels are built while the forward runs.
     Where kernels are not built by the deadline, the same graph operator by operator, until they are.

Requirements, held by tests/unit/test_begun.py and tests/differential/test_patience.py:
  1. A call finds out anew whether kernels are built: they take over between calls, and any forward fits any backward.
  2. What fails to be built fails where it is waited for, and there again. A graph that runs operator by operator by then runs on so, and the
     failure is told.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from stoker import log
from stoker.collector import collector_paused
from stoker.strict import strict


@dataclass(frozen=True, slots=True)
class Begun:
    """To finish is to wait for what is being built; once."""

    finish: Callable[[], Callable[..., Any]]
    can_wait: bool = False
    """May a backward be finished in the middle of the program, where autograd first calls it? Then it only waits, and measures nothing."""
    deadline: float = math.inf
    """The moment of `time.perf_counter` until which it is waited for. The rest is of use where there is one."""
    built_by: Callable[[float], bool] = lambda moment: True
    """Is nothing left to wait for at a moment? Waits until then at most."""
    operators: Callable[[], Callable[[list[Any]], Any]] | None = None
    """Makes the graph operator by operator, of a list of its inputs, which it empties."""
    tell: Callable[[Exception], None] = lambda error: None
    """Tells that it stays so, since its kernels could not be built."""
    location: str = "?"

    def is_late(self) -> bool:
        """Is it not built by its deadline? Waits until then, or, where somebody wants to tell of it, to the end."""
        forever = self.deadline == math.inf or getattr(_teller, "waits", False)
        return not forever and not self.built_by(self.deadline)


class Awaited:
    """A compiled graph that is waited for when it is called, until its deadline, and runs operator by operator until it is there. What
    fails then fails again."""

    _boxed_call = True

    def __init__(self, begun: Begun) -> None:
        self.begun = begun
        self.compiled: Callable[..., Any] | None = None
        self.operators: Callable[..., Any] | None = None
        self.listeners = log.listeners()
        _awaited.add(self)

    def wait(self) -> Callable[..., Any]:
        if self.compiled is None:
            with log.telling(self.listeners), torch.inference_mode(False), torch.no_grad(), collector_paused():
                self.compiled = self.begun.finish() if self.operators is None else self._taken_over(self.operators)
                self.operators = None
        return self.compiled

    def _taken_over(self, operators: Callable[..., Any]) -> Callable[..., Any]:
        try:
            compiled = self.begun.finish()
        except Exception as error:
            if strict():
                raise
            self.begun.tell(error)
            return operators
        self._tell("kernels of a graph are built, and have taken over")
        return compiled

    def __call__(self, arguments: list[Any]) -> Any:
        compiled = self.compiled or (self._by_operators() if self.begun.is_late() else self.wait())
        return compiled(arguments) if getattr(compiled, "_boxed_call", False) else compiled(*arguments)

    def _by_operators(self) -> Callable[..., Any]:
        if self.operators is None:
            assert self.begun.operators is not None
            with log.telling(self.listeners), torch.inference_mode(False), torch.no_grad():
                self._tell("a graph runs operator by operator until its kernels are built")
                self.operators = self.begun.operators()
        return self.operators

    def _tell(self, words: str) -> None:
        log.record(log.Event("patience", words, self.begun.location))


_awaited: weakref.WeakSet[Awaited] = weakref.WeakSet()
_teller = threading.local()
"""`waits`: does this thread want to tell of what is compiled?"""


@contextlib.contextmanager
def awaiting() -> Iterator[None]:
    """Wait for what is begun inside, for who wants to tell of it."""
    known, waited = list(_awaited), getattr(_teller, "waits", False)
    _teller.waits = True
    try:
        yield
        for one in list(_awaited):
            if not any(one is other for other in known):
                one.wait()
    finally:
        _teller.waits = waited


def finished(compiled: Callable[..., Any] | Begun) -> Callable[..., Any]:
    """The compiled graph; one that is late takes its inputs in a list."""
    if not isinstance(compiled, Begun):
        return compiled
    return Awaited(compiled) if compiled.is_late() else compiled.finish()


def unboxed(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled graph that takes its inputs one by one; one that is late, or made by a compiler of torch's, may want them in a list."""
    return (lambda *inputs: compiled(list(inputs))) if getattr(compiled, "_boxed_call", False) else compiled
