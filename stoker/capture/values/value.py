"""What the evaluator holds in place of a Python object.

A `Value` stands for one object of the captured program. It either existed before the call (then `source` says where,
and reads of it are guarded) or is made by the captured code (then it is rebuilt afterwards if someone can still see it).

Requirements:
  1. One object of the program is one Value: identity of Values is identity of objects.
  2. An operation either means what CPython's means, or raises `Break`; it never guesses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from stoker.capture.machine import Emitting, Machine
from stoker.errors import Break
from stoker.guard.source import Source

Arguments = list["Value"]
Keywords = dict[str, "Value"]
MOST_COMPARED = 16
"""Keys that a number is compared with one by one."""


class Exhausted(Exception):
    """An iterator has no more elements."""


class NotConstant(Exception):
    """The value is not known to the evaluator as a plain Python object."""


class Era:
    """Counts the subgraphs inside each other that are being captured at this moment (`stoker.capture.subgraph`)."""

    now = 0


class Value:
    """The protocol. A subclass overrides what its kind of object can do; the rest breaks with a reason."""

    source: Source | None = None
    root_name: str | None = None  # of a cell that is a variable of the captured frame itself
    has_identity = True  # may a program tell two equal ones apart, so that rebuilding must keep sharing?
    written_last = False  # is what captured code changed of it written when all else is?
    era = 0  # how many subgraphs were being captured when it was made

    def __new__(cls, /, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        if Era.now:
            object.__setattr__(made, "era", Era.now)
        return made

    def python_type(self) -> type:
        raise NotImplementedError(type(self).__name__)

    def describe(self) -> str:
        """The value in words, for reasons: where it came from, or what it is."""
        return f"`{self.source.text}`" if self.source is not None else f"a {self.python_type().__qualname__}"

    def unsupported(self, what: str, fix: str | None = None) -> NoReturn:
        reason = f"{what} of {self.describe()} ({self.python_type().__qualname__}) is not captured"
        raise Break(what, reason, fix) if fix else Break(what, reason)

    def require(self, m: Machine, special: str, words: str) -> None:
        """Raise CPython's TypeError for an object whose class lacks a special method; `{name}` in the words is the class."""
        cls = self.python_type()
        if not any(special in vars(base) for base in cls.__mro__):
            m.exceptions.raise_(TypeError, words.format(name=cls.__name__))

    def stored(self) -> Value:
        """The built-in container inside an instance of its subclass, or the value itself."""
        return self

    def constant(self) -> Any:
        """The plain Python object, when it is known and immutable."""
        raise NotConstant(type(self).__name__)

    def attribute(self, m: Machine, name: str) -> Value:
        if name in ("__next__", "__iter__") and hasattr(self.python_type(), name):
            return m.attributes.bound_builtin(self, name)
        self.unsupported(f"attribute {name!r}")
        return None

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        self.unsupported(f"assignment to attribute {name!r}")

    def delete_attribute(self, m: Machine, name: str) -> None:
        self.unsupported(f"deletion of attribute {name!r}")

    def method(self, m: Machine, name: str, args: Arguments, kwargs: Keywords) -> Value:
        return self.attribute(m, name).call(m, args, kwargs)

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        self.require(m, "__call__", "'{name}' object is not callable")
        self.unsupported("a call")

    def truth(self, m: Machine) -> bool:
        """What has neither a truth nor a length of its own is true."""
        if any(name in vars(base) for base in self.python_type().__mro__ for name in ("__bool__", "__len__")):
            self.unsupported("the truth value")
        return True

    def length(self, m: Machine) -> Value:
        self.require(m, "__len__", "object of type '{name}' has no len()")
        self.unsupported("len()")

    def item(self, m: Machine, key: Value) -> Value:
        self.require(m, "__getitem__", "'{name}' object is not subscriptable")
        self.unsupported("indexing")

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        self.require(m, "__setitem__", "'{name}' object does not support item assignment")
        self.unsupported("item assignment")

    def delete_item(self, m: Machine, key: Value) -> None:
        self.require(m, "__delitem__", "'{name}' object doesn't support item deletion")
        self.unsupported("item deletion")

    def contains(self, m: Machine, item: Value) -> Value:
        """An iterator is advanced up to the element that is looked for."""
        if not hasattr(self.python_type(), "__next__"):
            self.unsupported("the `in` operator")
        while True:
            try:
                element = self.next(m)
            except Exhausted:
                return m.wrap.constant(False)
            if element is item or m.operators.equal(element, item):
                return m.wrap.constant(True)

    def iterator(self, m: Machine) -> Value:
        self.require(m, "__iter__", "'{name}' object is not iterable")
        self.unsupported("iteration")

    def next(self, m: Machine) -> Value:
        """The next element; raises `Exhausted`."""
        self.require(m, "__next__", "'{name}' object is not an iterator")
        self.unsupported("next()")

    def items_list(self, m: Machine) -> list[Value]:
        """All elements, by iterating."""
        found: list[Value] = []
        iterator = self.iterator(m)
        while True:
            try:
                found.append(iterator.next(m))
            except Exhausted:
                return found

    def hashed_elements(self, m: Machine) -> list[tuple[Any, Value]] | None:
        """All elements behind their `hash_key`s, where those were asked for before."""
        return None

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        """`self op other` (or `other op self` if reflected); None where CPython's slot gives NotImplemented."""
        return None

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        return None

    def unary(self, m: Machine, operator: str) -> Value:
        self.unsupported(f"unary {operator}")

    def is_none_of(self, m: Machine, keys: Collection[Any]) -> bool:
        """Is it found to be equal to none of these keys, so that none need be looked up?"""
        return False

    def hash_key(self, m: Machine) -> Any:
        """A hashable stand-in with the equality of the object, for use as a dictionary key."""
        self.unsupported("hashing")

    def write_back(self, e: Emitting) -> None:
        """Write what the captured code changed of an object that existed before the call."""
        self.unsupported("writing back")

    def emit(self, e: Emitting) -> None:
        """Push the object in the replacement code. Only for values without a source."""
        self.unsupported("rebuilding")


class Null(Value):
    """CPython's NULL on the stack."""

    def python_type(self) -> type:
        return type(None)

    def describe(self) -> str:
        return "NULL"


NULL = Null()


class Lazy(Value):
    """A value of the program's surroundings that nobody has looked at: no guard on it is needed yet."""

    def __init__(self, real: Any, source: Source) -> None:
        self.real, self.source = real, source
        self.forced: Value | None = None

    def python_type(self) -> type:
        return type(self.real)


@dataclass(frozen=True, slots=True)
class MadePart:
    """A class made while capturing by an instruction of the root frame, or an object that this class holds, and by which names."""

    real: Any
    cls: Value
    path: tuple[str, ...]
    step: int


class OwnKey:
    """A dictionary key whose hash and equality the program has written. `once`: the instruction of the root frame that asked for them, where
    asking again would be noticed."""

    __slots__ = ("once",)
    once: int | None


class IdentityKey(OwnKey):
    """A dictionary key that equals only itself: the identity of one value."""

    __slots__ = ("value",)

    def __init__(self, value: Value, once: int | None = None) -> None:
        self.value, self.once = value, once

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


def keep_apart(m: Machine, stand_in: Any, others: Iterable[Any]) -> None:
    """A key was found to be none of the others: under guards, where objects from outside might be one and the same at another call."""
    mine = list(_identities(stand_in))
    for theirs in (found for other in others for found in _identities(other)) if mine else ():
        for value in mine:
            if value.python_type() is theirs.python_type():
                m.operators.is_(value, theirs)


def _identities(stand_in: Any) -> Iterator[Value]:
    """Objects from outside whose identity a key is, or has parts of."""
    if isinstance(stand_in, (tuple, frozenset)):
        for part in stand_in:
            yield from _identities(part)
    elif isinstance(stand_in, IdentityKey) and stand_in.value.source is not None:
        yield stand_in.value


def asked_once(stand_ins: Iterable[Any]) -> Iterator[int]:
    """The instructions before which keys, or parts of them, had not been asked for their hashes, if they may be asked only once."""
    for stand_in in stand_ins:
        if isinstance(stand_in, (tuple, frozenset)):
            yield from asked_once(stand_in)
        elif isinstance(stand_in, OwnKey) and stand_in.once is not None:
            yield stand_in.once
