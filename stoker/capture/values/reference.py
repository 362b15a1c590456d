"""Weak references, and the number that `id()` gives an object."""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Arguments, IdentityKey, Keywords, Lazy, OwnKey, Value
from stoker.errors import Break, SkipFrame, StepBreak
from stoker.guard.source import Source

USED = "the number itself is used, not only compared"


class ReferenceValue(Value):
    """A weakref.ref. Of one whose object is gone, captured code only sees that it is."""

    def __init__(self, target: Value, source: Source | None = None, callback: Value | None = None) -> None:
        self.held, self.source, self.callback = target, source, callback

    held: Value | None

    @property
    def target(self) -> Value | None:
        return self.held

    def python_type(self) -> type:
        return weakref.ref

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        assert self.held is not None
        self.held = m.wrap.force(self.held)
        real = getattr(self.held, "real", None)
        if real is not None and any(real is given for given in m.request.bound) and not is_held(m, self.held):
            raise SkipFrame("a weak reference is asked for an object that this function may have been the last to hold")
        return self.held

    def method___call__(self, m: Machine) -> Value:
        return self.call(m, [], {})

    def attribute(self, m: Machine, name: str) -> Value:
        if name == "__callback__":
            if self.source is not None:
                self.unsupported("attribute '__callback__'")
            return self.callback if self.target is not None and self.callback is not None else Constant(None)
        return super().attribute(m, name)

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if operator not in ("==", "!=") or not isinstance(other, ReferenceValue):
            return None
        targets = [reference.alive(m) for reference in (self, other)]
        return Constant(m.operators.equal(*targets) == (operator == "=="))

    def hash_key(self, m: Machine) -> Any:
        """References are equal where their objects are."""
        return weakref.ref, self.alive(m).hash_key(m)

    def alive(self, m: Machine) -> Value:
        target = self.call(m, [], {})
        if isinstance(target, Constant) and target.value is None:
            raise Break("a weak reference", f"{self.describe()} refers to an object that is gone, and is compared")
        return target

    def emit(self, e: Emitting) -> None:
        self.emit_as(e, weakref.ref)

    def emit_as(self, e: Emitting, cls: type) -> None:
        """Push a reference of a class."""
        more = [] if self.callback is None else [self.callback]
        target = self.target
        if target is None:
            e.call_function(_gone, [Constant(cls)])
        else:
            e.call_function(weakref.ref.__new__, [Constant(cls), target, *more])


class MadeReference(ReferenceValue):
    """To an object that captured code made. Its Value goes when the object does: captured code holds the one as the program holds the
    other. Where the evaluator alone still has it, or a ring that no collector has met, nobody can tell."""

    def __init__(self, m: Machine, target: Value, callback: Value | None) -> None:
        super().__init__(target, None, callback)
        machine = weakref.ref(m)

        def note(gone: Any) -> None:
            m = machine()
            if m is not None and "effects" in vars(m):
                m.effects.died.append(m.step)

        self.held = None
        self.weak = weakref.ref(target, note if callback is not None else None)
        m.effects.references.append(weakref.ref(self))

    @property
    def target(self) -> Value | None:
        return self.weak()

    def hold(self) -> None:
        """The root frame returns: what goes with it, goes when the replacement code returns."""
        self.held = self.weak()

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        target = self.weak()
        if target is None:
            return Constant(None)
        if not is_held(m, target):
            reason = f"whether {target.describe()} is still alive cannot be told"
            raise Break("a weak reference", reason, "hold the object by a name while the reference is used")
        return target

    def hash_key(self, m: Machine) -> Any:
        key = self.alive(m).hash_key(m)
        if not isinstance(key, IdentityKey):
            raise Break("a weak reference as a key", "its object was made here, and has a hash of its own")
        return weakref.ref, WeakKey(self.weak)

    def emit_as(self, e: Emitting, cls: type) -> None:
        target = self.weak()
        if target is not None and self.held is None and not is_held(e.m, target):
            raise Break("a weak reference", f"whether {target.describe()} is still alive at the break cannot be told")
        super().emit_as(e, cls)
        if target is not None:  # which has a name until the frame ends, or lets go of it
            e.load(target)
            e.pop()


class WeakKey(OwnKey):
    """A dictionary key that equals only itself, and does not keep alive what it is the identity of."""

    __slots__ = ("number", "weak")

    def __init__(self, weak: weakref.ref[Value]) -> None:
        self.number, self.weak, self.once = id(weak()), weak, None

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, WeakKey) and self.weak() is not None and other.weak() is self.weak()


class _Gone:
    pass


def _gone(cls: type) -> Any:
    """A reference to an object that is gone."""
    return weakref.ref.__new__(cls, _Gone())


def reference_to(m: Machine, value: Value, callback: Value, is_plain: bool = True) -> ReferenceValue:
    """A new reference to an object; without a callback, CPython gives the one that is there."""
    value = m.wrap.force(value)
    called = None if isinstance(callback, Constant) and callback.value is None else callback
    cls = value.python_type()
    if not cls.__weakrefoffset__ and not isinstance(value, ReferenceValue):
        m.exceptions.raise_(TypeError, f"cannot create weak reference to '{cls.__name__}' object")
    if value.source is not None:
        return ReferenceValue(value, None, called)
    if called is not None and issubclass(cls, torch.Tensor):
        raise SkipFrame("a weak reference waits for a tensor that is computed here to go away")
    if called is not None or not is_plain:
        return MadeReference(m, value, called)
    found: ReferenceValue | None = value.__dict__.get("weak_reference")
    if found is None:
        found = value.__dict__["weak_reference"] = MadeReference(m, value, None)
    return found


def is_held(m: Machine, target: Value) -> bool:
    """Does the program hold an object, by what its frames have, or by what it has changed outside?"""
    waiting: list[Any] = [list(m.effects.mutated.values()), m.effects.deferred]
    frame: Any = m.current
    while frame is not None:
        waiting += [frame.locals, frame.cells, frame.stack, frame.handled, frame.names]
        frame = frame.parent
    return _leads_to(waiting, target)


def _leads_to(waiting: list[Any], target: Value) -> bool:
    real = getattr(target, "real", None)
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if found is target or (type(found) is Lazy and real is not None and found.real is real):
            return True
        if id(found) not in seen:
            seen.add(id(found))
            waiting += _parts(found)
    return False


HOLDS = (
    "_added", "_attributes", "_closure", "_defaults", "_elements", "_entries", "_found", "args", "below", "contents", "default_factory",
    "fields", "frame", "frames", "function", "kwargs", "links", "mapping", "part", "parts", "receiver", "sequence", "slots", "storage",
    "waiting",
)  # fmt: skip
"""What values keep the program's objects in. Whatever else they remember, the program has let go of, or is not known to hold."""


def _parts(found: Any) -> Iterable[Any]:
    """What an object of the evaluator holds for the program."""
    match found:
        case Lazy():
            return [found.forced]
        case ReferenceValue():
            return [found.callback]
        case Value():
            held = vars(found)
            return [held[name] for name in HOLDS if name in held]
        case dict():
            return list(found.values())
        case list() | tuple():
            return found
    return [found.locals, found.cells, found.stack] if type(found).__name__ == "Frame" else []


def refers_to_what_is_made(m: Machine) -> bool:
    """Is there a weak reference to an object that captured code made, and that is still there?"""
    found = [weak() for weak in m.effects.references]
    return any(reference is not None and reference.target is not None for reference in found)


def holds_what_is_referred_to(m: Machine, value: Value) -> bool:
    """Does a value hold an object that captured code made, and has a weak reference to?"""
    found = [weak() for weak in m.effects.references]
    return any(r is not None and r.target is not None and _leads_to([value], r.target) for r in found)


def hold_targets(m: Machine) -> None:
    """Before the root frame lets go of what it has."""
    for weak in m.effects.references:
        reference = weak()
        if reference is not None:
            reference.hold()


def refuse_called_back(m: Machine) -> None:
    """Break where an object went away that a reference with a callback refers to: CPython calls it."""
    if m.effects.died:
        reason = Break("a weak reference with a callback", "its object goes away here, and the callback is called")
        m.blame(reason)
        raise StepBreak(min(m.effects.died), reason)


class IdentityValue(Value):
    """`id(value)`: a number that is good for comparing and as a key, unknown until the program runs."""

    has_identity = False

    def __init__(self, value: Value) -> None:
        self.value = value

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"id() of {self.value.describe()}"

    def truth(self, m: Machine) -> bool:
        return True

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if operator in ("==", "!="):
            same = (
                m.operators.is_(self.value, other.value)
                if isinstance(other, IdentityValue)
                else self._is_number(m, other)
            )
            return Constant(same == (operator == "=="))
        raise Break("id()", USED)

    def _is_number(self, m: Machine, other: Value) -> bool:
        """Is it a number from elsewhere? Known of an object that existed before the call, which is then always this one."""
        value = m.wrap.force(self.value)
        real = getattr(value, "real", None)
        if value.source is None or real is None or other.python_type() is not int:
            raise Break("id()", USED)
        m.guards.identity(value)
        return m.concrete.constant(other, "id()") == id(real)

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        raise Break("id()", USED)

    def hash_key(self, m: Machine) -> Any:
        if isinstance(self.value, Constant):
            return ("id of", type(self.value.value), self.value.value)
        return IdentityKey(self.value)

    def refuse_among(self, keys: Iterable[Any]) -> None:
        """A key that is a known number may be this one."""
        if any(type(key) is int for key in keys):
            raise Break("id() as a key", "it is looked up among numbers that may be results of id() from before")

    def emit(self, e: Emitting) -> None:
        e.call_function(id, [self.value])


class ThreadIdentity(IdentityValue):
    """`threading.get_ident()`: used as a key by code that guards against recursion."""

    def emit(self, e: Emitting) -> None:
        e.call_function(_thread.get_ident, [])
