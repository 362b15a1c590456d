"""Functions under functools.lru_cache and functools.cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.instance import ObjectValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import TextValue
from stoker.capture.values.value import Arguments, Keywords, Value
from stoker.errors import Break, StepBreak
from stoker.fake.tensor import FakeTensor
from stoker.guard.guard import Gives
from stoker.guard.source import Source
from stoker.nest import leaves

if TYPE_CHECKING:
    from stoker.capture.frame import Frame
    from stoker.capture.machine import Machine


class CachedFunction(ObjectValue):
    """A function under functools.lru_cache, called for real: what is in its cache is what the program would get.

    The call leaves the cache as the program's own first call would; capturing anew, or running the call again in CPython,
    finds the result there. The guard makes the program's call: what it gives must be the same object.

    While changes wait to be replayed, the function itself must not run unless it does nothing but compute plain data, the same with
    these changes as without. An empty cache means that it would run, so it is entered to see that; without arguments, a cache
    that holds something holds the result.
    """

    def __init__(self, real: Any, source: Source, function: Value) -> None:
        super().__init__(type(real), real, source)
        self.function = function
        self.made: dict[Any, Value] = {}  # results for tensors that captured code made

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        what = f"a call of `{self.function.describe()}` under functools.lru_cache"
        if _counts_calls(m.current):
            raise Break(
                what, "the program asks how often it is called: cache_info()", "ask outside the compiled function"
            )
        if any(_is_made_here(argument) for argument in (*args, *kwargs.values())):
            return self.of_new_tensors(m, args, kwargs, what)
        waiting = (m.effects.mutated or m.effects.deferred) and not self.is_library(m)
        empty = not self.real.cache_info().currsize
        if waiting and not empty and (args or kwargs):
            raise Break(what, "it might see what the captured code has changed so far", "call it first")
        if any(_is_symbolic(m, argument) for argument in (*args, *kwargs.values())):
            return self.enter(m, args, kwargs, what)
        try:
            given = [_real_argument(m, a, what) for a in args]
            named = {name: _real_argument(m, a, what) for name, a in kwargs.items()}
        except Break as error:
            raise Break(what, "its arguments are not plain data", "call it outside the compiled function") from error
        assert self.source is not None
        m.guards.identity(self)
        expected = m.concrete.constant(self.enter(m, args, kwargs, what), what) if waiting and empty else None
        result = m.concrete.run(lambda: self.real(*given, **named))
        if waiting and empty and not (is_plain(result) and repr(result) == repr(expected)):  # 1 and 1.0 and True differ
            self.real.cache_clear()  # as it was
            raise Break(what, "it sees what the captured code has changed so far", "call it first")
        misses, maxsize = self.real.cache_info().misses, self.real.cache_parameters()["maxsize"]
        if maxsize is not None and misses > maxsize:
            raise Break(what, "its cache is full: what it holds depends on the order of calls", "use functools.cache")
        m.guards.add(self.source, Gives(lambda now: now(*given, **named) is result, f"keeps its result for {given}"))
        return m.wrap.constant(result) if is_plain(result) else m.wrap.object(result)

    def of_new_tensors(self, m: Machine, args: Arguments, kwargs: Keywords, what: str) -> Value:
        """With a tensor that the program has just made: the cache, which knows tensors by identity, holds what this run put there."""
        key = (*(a.hash_key(m) for a in args), *((name, a.hash_key(m)) for name, a in kwargs.items()))
        if key not in self.made:
            maxsize = self.real.cache_parameters()["maxsize"]
            if maxsize is not None and len(self.made) >= maxsize:
                raise Break(
                    what, "its cache is full: what it holds depends on the order of calls", "use functools.cache"
                )
            self.made[key] = self.function.call(m, args, kwargs)
        return self.made[key]

    def enter(self, m: Machine, args: Arguments, kwargs: Keywords, what: str) -> Value:
        """What the function computes, if that is all it does. With a size that stands for many numbers, the cache holds the results
        of some of them, all made alike."""
        before = _done(m)
        found = self.function.call(m, args, kwargs)
        if _done(m) != before:
            raise Break(
                what, "it draws numbers, or changes something besides its cache", "call it before, and pass the result"
            )
        if not self.is_library(m):
            self.keep(m, found, what)
        return found

    def keep(self, m: Machine, found: Value, what: str) -> None:
        """Note what the cache keeps, so that a change of it is seen."""
        match found:
            case TensorValue():
                memory = found.fake.memory  # type: ignore[attr-defined]  # a FakeTensor
                m.record.kept.append(Kept(memory, memory.content, m.step, what))
            case TupleValue():
                for part in found.items_list(m):
                    self.keep(m, part, what)
            case Constant() | SymbolicValue() | TextValue():
                pass
            case _:
                kind = found.python_type().__name__
                raise Break(what, f"its cache keeps a {kind}", "call it before, and pass the result")

    def is_library(self, m: Machine) -> bool:
        return m.policy.is_library(self.real.__wrapped__.__code__.co_filename)


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor that a cache of the program's keeps, and the graph makes anew: the same as long as it is only read."""

    memory: Any
    content: Any
    step: int
    what: str


def refuse_shared(m: Machine, outputs: Iterable[Node]) -> None:
    """Break where a cache was asked for a tensor that the graph writes to or gives away: all who ask get the same one."""
    tensors = [leaf for node in outputs for leaf in leaves(node.meta.get("example_value"))]
    given = {id(leaf.memory) for leaf in tensors if isinstance(leaf, FakeTensor)}
    for kept in m.record.kept:
        if kept.memory.content != kept.content or id(kept.memory) in given:
            reason = Break(
                kept.what, "what its cache keeps is written to, or given away", "call it before, and pass the result"
            )
            m.blame(reason)
            raise StepBreak(kept.step, reason)


def _done(m: Machine) -> tuple[int, int, int]:
    """How much was changed and drawn so far."""
    return len(m.effects.mutated), len(m.effects.deferred), m.record.fake_mode.drawn


def _counts_calls(frame: Frame | None) -> bool:
    """Does the code that runs ask caches for their statistics? Capture, and the guards of what it makes, call them too."""
    while frame is not None:
        if "cache_info" in frame.code.co_names:
            return True
        frame = frame.parent
    return False


def _is_made_here(value: Value) -> bool:
    return value.source is None and issubclass(value.python_type(), torch.Tensor)


def _is_symbolic(m: Machine, value: Value) -> bool:
    if isinstance(value, TupleValue):
        return any(_is_symbolic(m, part) for part in value.items_list(m))
    return isinstance(value, (SymbolicValue, TextValue))


def _real_argument(m: Machine, value: Value, what: str) -> Any:
    """Plain data, or an object from outside, then under a guard on its identity."""
    if isinstance(value, ObjectValue) and value.real is not None and value.source is not None:
        m.guards.identity(value)
        return value.real
    return m.concrete.constant(value, what)
