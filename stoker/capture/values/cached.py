"""Functions under functools.lru_cache and functools.cache.

A call finds its result in what this run has called so far, or in the real cache, under a guard: there is a version for results that are
held, and one for those that are not. What the calls do to the cache, its statistics too, is done once the graph has run, call by call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values import remembered
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.instance import ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import TextValue
from stoker.capture.values.value import Arguments, Era, IdentityKey, Keywords, NotConstant, Value, keep_apart
from stoker.errors import Break, Raised, StepBreak
from stoker.fake.tensor import FakeTensor
from stoker.guard.guard import Holds, HoldsTogether
from stoker.guard.source import Asked, Fixed, Remembered, Source
from stoker.nest import leaves

if TYPE_CHECKING:
    from stoker.capture.frame import Frame

FULL = "its cache is full: what it holds depends on the order of calls"
CHANGES = "it is changed here, or its class's __hash__ changes something"
EQUAL = "it is made here, and may equal one that the cache holds"


@dataclass(frozen=True, slots=True)
class KnownCall:
    """A call of this run, and what it gave; None where it raised."""

    args: Arguments
    kwargs: Keywords
    result: Value | None

    def is_of(self, m: Machine, args: Arguments, kwargs: Keywords, typed: bool) -> bool:
        """Has it the key of another call, as the cache makes keys?"""
        if len(args) != len(self.args) or list(kwargs) != list(self.kwargs):
            return False
        pairs = [*zip(self.args, args), *zip(self.kwargs.values(), kwargs.values())]
        alone = len(pairs) == 1 and not kwargs and any(v.python_type() in (int, str) for v in pairs[0])
        if (typed or alone) and any(a.python_type() is not b.python_type() for a, b in pairs):
            return False
        return all(_is_same_key(m, *pair) for pair in pairs)


@dataclass(frozen=True, slots=True)
class Replay:
    """What is done to the cache once the graph has run."""

    function: Callable[..., Any]
    args: list[Value]
    step: int


class CachedFunction(ObjectValue):
    """A function under functools.lru_cache.

    With plain data, and objects that stay the same, it is called for real: the call leaves the cache as the program's own first call
    would. While changes wait to be replayed, it must not run unless it does nothing but compute plain data, the same with these changes
    as without. An empty cache means that it would run, so it is entered to see that; without arguments, a cache that holds something
    holds the result. Else it is entered, or its result is read, as a guard on the cache says.
    """

    def __init__(
        self, function: Value, maxsize: int | None, typed: bool, real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(remembered.Cached, real, source)
        self.function, self.maxsize, self.typed = function, maxsize, typed
        self.information: Value = Constant(None)  # the class of what cache_info() gives, of one made here
        self.is_cleared = real is None
        self.calls: list[KnownCall] = []  # those that the cache holds, the newest last
        self.replays: list[Replay] = []
        self.hits = self.misses = self.touched = self.failed = 0

    def what(self) -> str:
        return f"a call of `{self.function.describe()}` under functools.lru_cache"

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        args = [m.wrap.force(a) for a in args]
        kwargs = {name: m.wrap.force(a) for name, a in kwargs.items()}
        found = self.called_before(m, args, kwargs)
        if found is not None:
            return found
        if not self.is_cleared:
            if self.is_library(m) and any(_is_symbolic(m, a) for a in (*args, *kwargs.values())):
                return self.enter(m, args, kwargs)
            known = _real_arguments(m, args, kwargs) if not self.misses and not _counts_calls(m.current) else None
            found = self.call_for_real(m, args, kwargs, *known) if known is not None else None
            if found is not None:
                return found
            try:
                found = self.look_up(m, args, kwargs)
            except NotConstant:
                return self.enter(m, args, kwargs)
            if found is not None:
                return found
        return self.make(m, args, kwargs)

    # A call that is made for real.

    def call_for_real(
        self, m: Machine, args: Arguments, kwargs: Keywords, given: tuple[Any, ...], named: dict[str, Any]
    ) -> Value | None:
        """The result of the program's own call; None where the call must not be made while capturing."""
        library, empty = self.is_library(m), not remembered.size_of(self.real)
        waiting = not library and any(change is not self for change in _changes(m))
        if waiting and not empty and (args or kwargs):
            return None
        result = m.concrete.run(remembered.find, self.real, self.typed, given, named)
        key = (id(self.real), remembered.key_of(self.typed, given, named))
        again = m.sizes.history.first_calls.get(key)
        if result is remembered.MISSING:
            is_full = self.maxsize is not None and remembered.misses_of(self.real) >= self.maxsize
            if again is not None or is_full:
                return None
            expected = m.concrete.constant(self.enter(m, args, kwargs), self.what()) if waiting else None
            result = m.concrete.run(lambda: self.real(*given, **named))
            if waiting and not (is_plain(result) and repr(result) == repr(expected)):  # 1 and 1.0 and True differ
                self.real.cache_clear()  # as it was
                raise Break(self.what(), "it sees what the captured code has changed so far", "call it first")
            again = m.sizes.history.first_calls[key] = remembered.Again(result)
        elif again is not None and again.identity != id(result):
            return None
        for value in (self, *args, *kwargs.values()):
            if isinstance(value, ObjectValue):
                m.guards.identity(value)
        assert self.source is not None
        typed = self.typed
        check = Holds(lambda now: remembered.find(now, typed, given, named) is result, f"keeps its result for {given}")
        m.guards.add(self.source, check)
        found = m.wrap.constant(result) if is_plain(result) else m.wrap.object(result)
        if not library and not Era.now:
            self.hits += again is None or not again.is_first
            self.touched += 1
            self.replay(m, again or remembered.call_again, args, kwargs)
            self.note(KnownCall(args, kwargs, found))
        return found

    # A call that is captured.

    def called_before(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value | None:
        for call in self.calls:
            if call.is_of(m, args, kwargs, self.typed):
                self.calls.remove(call)
                self.calls.append(call)
                self.hits += 1
                self.replay(m, remembered.call_again, args, kwargs)
                return call.result
        return None

    def look_up(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value | None:
        """What the real cache holds; None where it holds nothing. Raises NotConstant where the key cannot be asked for by a guard."""
        places = _Places(m, self.what())
        parts, named = [places.part(a) for a in args], {name: places.part(a) for name, a in kwargs.items()}
        if places.is_new:
            return None
        typed, beside = self.typed, tuple(places.sources)

        def question(cached: Any, *found: Any) -> Any:
            given = {name: part(found) for name, part in named.items()}
            return remembered.find(cached, typed, tuple(part(found) for part in parts), given)

        assert self.source is not None
        words = ", ".join(source.text for source in beside)
        held = m.concrete.run(question, self.real, *places.reals)
        if held is remembered.MISSING:
            check = HoldsTogether(lambda *f: question(*f) is remembered.MISSING, "keeps no result", beside)
            m.guards.add(self.source, check)
            return None
        self.refuse_if_evicted(m, parts, named, places)
        found = m.wrap.at(held, Remembered(self.source, _present(question), beside, words))
        self.hits += 1
        self.touched += 1
        self.replay(m, remembered.call_again, args, kwargs)
        self.note(KnownCall(args, kwargs, found))
        return found

    def refuse_if_evicted(self, m: Machine, parts: Any, named: Any, places: _Places) -> None:
        """What was called before may have driven the result out of a cache of bounded size."""
        newer, typed = self.misses + self.touched, self.typed
        if self.maxsize is None or not self.misses:
            return

        def stays(cached: Any, *found: Any) -> bool:
            given = {name: part(found) for name, part in named.items()}
            return remembered.survives(cached, typed, newer, tuple(part(found) for part in parts), given)

        if not stays(self.real, *places.reals):
            raise Break(self.what(), FULL, "use functools.cache")
        assert self.source is not None
        m.guards.add(self.source, HoldsTogether(stays, "keeps its result for long enough", tuple(places.sources)))

    def make(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        """Enter the function: the cache does not know the result."""
        code = self.code()
        if code is None:
            raise Break(self.what(), "what it wraps is not a Python function", "call it outside the compiled function")
        for value in (*args, *kwargs.values()):
            if not _is_symbolic(m, value):
                value.hash_key(m)  # raises what the program raises
        self.misses += 1
        try:
            result = self.function.call(m, args, kwargs)
        except Raised:
            self.failed += 1
            self.replay(m, remembered.fail, args, kwargs, Constant(code))
            raise
        self.replay(m, remembered.fill, args, kwargs, Constant(code), result)
        self.note(KnownCall(args, kwargs, result))
        return result

    def code(self) -> Any:
        if self.real is not None:
            return remembered.code_behind(self.real.__wrapped__)
        function: Any = self.function
        while hasattr(function, "function"):
            function = function.function
        return getattr(function, "code", None)

    def note(self, call: KnownCall) -> None:
        self.calls.append(call)
        if self.maxsize is not None and len(self.calls) > self.maxsize:
            del self.calls[0]

    def replay(self, m: Machine, function: Callable[..., Any], args: Arguments, kwargs: Keywords, *more: Value) -> None:
        m.effects.will_mutate(self)
        named = DictValue({name: (Constant(name), value) for name, value in kwargs.items()})
        self.replays.append(Replay(function, [TupleValue(list(args)), named, *more], m.step))

    # A call with numbers that no guard can ask for.

    def enter(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        """What the function computes, if that is all it does. With a size that stands for many numbers, the cache holds the results
        of some of them, all made alike."""
        before = _done(m)
        found = self.function.call(m, args, kwargs)
        if _done(m) != before:
            raise Break(
                self.what(),
                "it draws numbers, or changes something besides its cache",
                "call it before, and pass the result",
            )
        if not self.is_library(m):
            self.keep(m, found)
        return found

    def keep(self, m: Machine, found: Value) -> None:
        """Note what the cache keeps, so that a change of it is seen."""
        match found:
            case TensorValue():
                memory = found.fake.memory  # type: ignore[attr-defined]  # a FakeTensor
                m.record.kept.append(Kept(memory, memory.content, m.step, self.what()))
            case TupleValue():
                for part in found.items_list(m):
                    self.keep(m, part)
            case Constant() | SymbolicValue() | TextValue():
                pass
            case _:
                kind = found.python_type().__name__
                raise Break(self.what(), f"its cache keeps a {kind}", "call it before, and pass the result")

    def is_library(self, m: Machine) -> bool:
        code = self.code()
        return code is not None and m.policy.is_library(code.co_filename)

    # What the function says of its cache.

    def method_cache_info(self, m: Machine) -> Value:
        if any(isinstance(r.function, remembered.Again) and r.function.is_first for r in self.replays):
            raise Break("cache_info()", "capture has called the function itself", "ask where the function is called")
        cls = self.information.constant() if self.real is None else type(remembered.info_of(self.real))
        size = self.counted(m, remembered.size_of, self.misses - self.failed)
        if self.maxsize is not None and m.operators.compare(">", size, Constant(self.maxsize)).truth(m):
            size = Constant(self.maxsize)
        hits = self.counted(m, remembered.hits_of, self.hits)
        misses = self.counted(m, remembered.misses_of, self.misses)
        return TupleValue([hits, misses, Constant(self.maxsize), size], cls)

    def counted(self, m: Machine, question: Callable[[Any], int], more: int) -> Value:
        if self.is_cleared:
            return Constant(more)
        assert self.source is not None
        before = m.wrap.at(question(self.real), Asked(self.source, question))
        return m.operators.binary("+", before, Constant(more))

    def method_cache_clear(self, m: Machine) -> Value:
        m.effects.will_mutate(self)
        self.replays.append(Replay(remembered.Cached.cache_clear, [], m.step))  # type: ignore[attr-defined]  # typeshed does not know the class
        self.is_cleared, self.hits, self.misses, self.touched, self.failed = True, 0, 0, 0, 0
        self.calls.clear()
        return Constant(None)

    def write_back(self, e: Emitting) -> None:
        for replay in self.replays:
            try:
                e.method_call(self, replay.function, replay.args)
            except Break as reason:
                e.m.blame(reason)
                raise StepBreak(replay.step, reason) from reason

    def emit(self, e: Emitting) -> None:
        e.call_function(
            remembered.Cached, [self.function, Constant(self.maxsize), Constant(self.typed), self.information]
        )
        e.name_top(self)
        for key, value in self._attributes._entries.values() if self._attributes is not None else ():
            e.store_attribute(self, key.constant(), value)
        self.write_back(e)


@dataclass
class _Places:
    """Where a guard finds the arguments of a call."""

    m: Machine
    what: str
    sources: list[Source] = field(default_factory=list)
    reals: list[Any] = field(default_factory=list)
    is_new: bool = False
    """Is an argument made here, and like no other?"""

    def part(self, value: Value) -> Callable[[Any], Any]:
        """How an argument is made of the objects at the places."""
        value = self.m.wrap.force(value)
        if isinstance(value, TextValue):
            raise NotConstant("text")
        if isinstance(value, SymbolicValue):
            computed = self.m.sizes.computed_from(value.symbol)
            if computed is None:
                raise NotConstant("a number that no guard can ask for")
            numbers = [self.at(place, seen) for place, seen in computed[0]]
            return lambda found: computed[1]([number(found) for number in numbers])
        if isinstance(value, TupleValue):
            parts = [self.part(part) for part in value.items_list(self.m)]
            make = getattr(value.cls, "_make", value.cls)
            return lambda found: make([part(found) for part in parts])
        if isinstance(value, Constant):
            return _always(value.value)
        noticed = self.m.effects.noticed
        key = value.hash_key(self.m)
        if value.source is None and isinstance(key, IdentityKey):
            self.is_new = True
            return _always(None)
        real = getattr(value, "real", None)
        changed = isinstance(value, ObjectValue) and not isinstance(key, IdentityKey) and value.has_changed(self.m)
        if value.source is None or real is None or self.m.effects.noticed != noticed or changed:
            words = EQUAL if value.source is None else CHANGES
            raise Break(self.what, f"{value.describe()}: {words}", "call it outside the compiled function")
        return _always(real) if isinstance(value.source, Fixed) else self.at(value.source, real)

    def at(self, source: Source, real: Any) -> Callable[[Any], Any]:
        index = len(self.sources)
        self.sources.append(source)
        self.reals.append(real)
        return lambda found: found[index]


def _always(real: Any) -> Callable[[Any], Any]:
    return lambda found: real


def _present(question: Callable[..., Any]) -> Callable[..., Any]:
    def found(*objects: Any) -> Any:
        held = question(*objects)
        if held is remembered.MISSING:
            raise KeyError("the cache holds no result")
        return held

    return found


def _is_same_key(m: Machine, one: Value, other: Value) -> bool:
    """Are two arguments equal, as a dictionary compares keys?"""
    if isinstance(one, TupleValue) and isinstance(other, TupleValue):
        pairs = list(zip(one.items_list(m), other.items_list(m)))
        same_length = len(one.items_list(m)) == len(other.items_list(m))
        return same_length and all(_is_same_key(m, *pair) for pair in pairs)
    if one is other:
        return True
    if isinstance(one, (SymbolicValue, TextValue)) or isinstance(other, (SymbolicValue, TextValue)):
        plain = (int, float, bool, str)
        return one.python_type() in plain and other.python_type() in plain and m.operators.equal(one, other)
    keys = one.hash_key(m), other.hash_key(m)
    if keys[0] != keys[1]:
        keep_apart(m, keys[0], [keys[1]])
    return bool(keys[0] == keys[1])


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


def _changes(m: Machine) -> list[Any]:
    """What waits to be replayed, but for calls of caches."""
    return [
        *(value for value in m.effects.mutated.values() if not isinstance(value, CachedFunction)),
        *m.effects.deferred,
    ]


def _done(m: Machine) -> tuple[int, int, int]:
    """How much was changed and drawn so far."""
    return len(m.effects.mutated), len(m.effects.deferred), m.record.fake_mode.drawn


def _counts_calls(frame: Frame | None) -> bool:
    """Does the code that runs ask caches for their statistics? Capture makes no calls of its own there."""
    while frame is not None:
        if "cache_info" in frame.code.co_names:
            return True
        frame = frame.parent
    return False


def _is_symbolic(m: Machine, value: Value) -> bool:
    if isinstance(value, TupleValue):
        return any(_is_symbolic(m, part) for part in value.items_list(m))
    return isinstance(value, (SymbolicValue, TextValue))


def _real_arguments(m: Machine, args: Arguments, kwargs: Keywords) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Plain data, and objects from outside that are the same at each call; None for others."""
    try:
        return tuple(_real_argument(m, a) for a in args), {name: _real_argument(m, a) for name, a in kwargs.items()}
    except (NotConstant, Break):
        return None


def _real_argument(m: Machine, value: Value) -> Any:
    if isinstance(value, ObjectValue) and value.real is not None and value.source is not None:
        if not isinstance(value.source, Fixed) and m.sizes.int_is_dynamic(Asked(value.source, id), id(value.real)):
            raise NotConstant("another object at each call")
        return value.real
    if _is_symbolic(m, value):
        raise NotConstant("a number of many")
    return m.concrete.constant(value, "an argument")


def made_here(m: Machine, function: Value, maxsize: Value, typed: Value, information: Value) -> Value:
    """`functools.lru_cache` in captured code."""
    limit = m.concrete.constant(maxsize, "the size of a cache")
    made = CachedFunction(function, None if limit is None else max(limit, 0), typed.truth(m))
    made.information = information
    return made
