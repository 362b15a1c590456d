"""The closed family of checks, and a guard: a check at a source.

In:  what the evaluator read, and what it took for granted about it.
Out: immutable guards with a C++ check kind, its argument, and words for the user.

Requirements:
  1. Every check kind is one that the C++ guard program knows (tests/tables/test_guards.py).
  2. A guard speaks in the user's terms: `words` names what was assumed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import BuiltinMethodType, MethodType
from typing import Any, ClassVar

import torch

from stoker.guard.source import Source


class Check:
    """One condition on one object. `rank` orders checks at one source: the cheap and selective ones first."""

    kind: ClassVar[str]
    said: ClassVar[str]
    rank: ClassVar[int] = 5
    last: ClassVar[bool] = False
    """Is it made once all other checks of all sources hold?"""

    __match_args__: ClassVar[tuple[str, ...]]

    @property
    def argument(self) -> Any:
        """What the check needs besides the object: its first field."""
        return getattr(self, self.__match_args__[0])

    @property
    def words(self) -> str:
        """What completes a sentence that begins with the source: `said`, of the check and of its first field as it is shown."""
        return self.said.format(self, shown(self.argument))


@dataclass(frozen=True, eq=False)
class TypeIs(Check):
    """The object's class is exactly this one."""

    type: type
    kind = "TYPE_IS"
    said = "is a {0.type.__qualname__}"
    rank = 0


@dataclass(frozen=True, eq=False)
class Is(Check):
    """The very object: used only where its identity was used."""

    value: Any
    kind = "IS"
    said = "is {1}"
    rank = 0


@dataclass(frozen=True, eq=False)
class IsNot(Check):
    value: Any
    kind = "IS_NOT"
    said = "is not {1}"
    rank = 0


@dataclass(frozen=True, eq=False)
class Equals(Check):
    """Same type and equal value; for plain immutable data."""

    value: Any
    kind = "EQUALS"
    said = "== {1}"
    rank = 1


@dataclass(frozen=True, eq=False)
class Length(Check):
    length: int
    kind = "LENGTH"
    said = "has {1} elements"
    rank = 1


@dataclass(frozen=True, eq=False)
class DictKeys(Check):
    """Exactly these keys, in this order."""

    keys: tuple
    kind = "DICT_KEYS"
    rank = 2

    @property
    def words(self) -> str:
        return f"has the keys {shown(list(self.keys))}"


@dataclass(frozen=True, eq=False)
class SetElements(Check):
    """Exactly these elements, of the same types and in the same order."""

    elements: tuple
    kind = "SET_ELEMENTS"
    rank = 2

    @property
    def words(self) -> str:
        return f"has the elements {shown(list(self.elements))}"


@dataclass(frozen=True, eq=False)
class HasKey(Check):
    key: Any
    kind = "HAS_KEY"
    said = "has {0.key!r}"
    rank = 2


@dataclass(frozen=True, eq=False)
class LacksKey(Check):
    key: Any
    kind = "LACKS_KEY"
    said = "has no {0.key!r}"
    rank = 2


@dataclass(frozen=True, eq=False)
class CodeIs(Check):
    """A Python function that runs this code."""

    code: Any
    kind = "CODE_IS"
    said = "is the function {0.code.co_qualname} of {0.code.co_filename}:{0.code.co_firstlineno}"
    rank = 0


@dataclass(frozen=True, eq=False)
class TypeAttributes(Check):
    """Class attributes looked up during capture are still the same objects (none found is MISSING), and so is `__mro__`."""

    type: type
    attributes: tuple[tuple[str, Any], ...]
    kind = "TYPE_ATTRS"
    rank = 3

    @property
    def argument(self) -> Any:
        return (self.type, self.attributes)

    @property
    def words(self) -> str:
        names = ", ".join(name for name, _ in self.attributes if name != "__mro__")[:80]
        return f"class {self.type.__qualname__} is unchanged ({names})"


@dataclass(frozen=True, eq=False)
class TensorMatch(Check):
    """Class, dtype, device, layout, requires_grad, dispatch keys, ndim, sizes and strides (-1: any)."""

    spec: Any
    description: str
    kind = "TENSOR"
    said = "is {0.description}"
    rank = 4


@dataclass(frozen=True, eq=False)
class SameAs(Check):
    """The same object as the one found at another source."""

    other: Source
    kind = "SAME_AS"
    rank = 6
    last = True

    @property
    def argument(self) -> Any:
        raise AssertionError("resolved to a slot by compile_guards")

    @property
    def words(self) -> str:
        return f"is {self.other.text}"


@dataclass(frozen=True, eq=False)
class NotSameAs(Check):
    """None of the objects found at the other sources: what is written through one name is not seen through another."""

    others: tuple[Source, ...]
    kind = "NOT_SAME_AS"
    rank = 6
    last = True

    @property
    def argument(self) -> Any:
        raise AssertionError("resolved to slots by compile_guards")

    @property
    def words(self) -> str:
        return "is not also " + " or ".join(other.text for other in self.others[:4])


@dataclass(frozen=True, eq=False)
class InRange(Check):
    lower: int
    upper: int
    kind = "RANGE"
    said = "is an int from {0.lower} to {0.upper}"
    rank = 1

    @property
    def argument(self) -> Any:
        return (self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Holds(Check):
    """An escape hatch: a Python predicate. For rare kinds only; it is the one check that runs Python."""

    predicate: Any
    description: str
    kind = "PYTHON"
    said = "{0.description}"
    rank = 7


@dataclass(frozen=True, eq=False)
class HoldsTogether(Check):
    """A Python predicate of the object and of those found at other sources."""

    predicate: Any
    description: str
    others: tuple[Source, ...]
    kind = "PYTHON"
    rank = 7
    last = True

    @property
    def argument(self) -> Any:
        raise AssertionError("resolved to slots by compile_guards")

    @property
    def words(self) -> str:
        return f"{self.description}, with {', '.join(other.text for other in self.others)}"


@dataclass(frozen=True, eq=False)
class Guard:
    """A check at a source, and the user's line that needed it. Source None: the thread's torch state or a size relation."""

    source: Source | None
    check: Check | None
    location: str = ""
    description: str = ""
    reads: tuple[Source, ...] = ()
    """Of a size relation: the sizes that it is about."""

    @property
    def text(self) -> str:
        if self.source is None or self.check is None:
            return self.description
        return f"{self.source.text} {self.check.words}"


def same_answer(now: Any, was: Any) -> bool:
    """The same object, or equal plain data of the same types all the way down, in the same order."""
    if now is was:
        return True
    kind = type(was)
    if type(now) is not kind:
        return False
    if kind in (list, tuple, set, frozenset):
        return len(now) == len(was) and all(map(same_answer, now, was))
    if kind is dict:
        return same_answer(list(now.items()), list(was.items()))
    if kind in (MethodType, BuiltinMethodType):
        return now.__self__ is was.__self__ and now == was
    return kind in COMPARED and now == was and repr(now) == repr(was)


COMPARED = (int, float, complex, str, bytes, torch.device, torch.Size)


def shown(value: Any, limit: int = 60) -> str:
    """`repr`, cut short, of built-in data; other objects by their class, since their `__repr__` is the user's code."""
    text = _text(value, 3)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _text(value: Any, depth: int) -> str:
    kind = type(value)
    if depth and kind in (list, tuple, set, frozenset) and value:
        parts = ", ".join(_text(part, depth - 1) for part in list(value)[:12])
        left, right = "[]" if kind is list else "()" if kind is tuple else "{}"
        return f"{left}{parts}{',' if kind is tuple and len(value) == 1 else ''}{right}"
    if depth and kind is dict and value:
        return "{" + ", ".join(f"{_text(k, 0)}: {_text(v, depth - 1)}" for k, v in list(value.items())[:12]) + "}"
    if kind in (list, tuple, set, frozenset, dict) and value:
        return f"a {kind.__name__}"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if kind.__flags__ & HEAP_TYPE and kind.__repr__ not in LIBRARYS:
        return f"a {kind.__qualname__}"
    return repr(value)


HEAP_TYPE = 1 << 9
_ENUMS = [vars(cls)["__repr__"] for cls in vars(enum).values() if isinstance(cls, type) and "__repr__" in vars(cls)]
LIBRARYS = (object.__repr__, type.__repr__, enum.global_enum_repr, enum.global_flag_repr, *_ENUMS)
"""Ways to show an object that run no code of the user's."""
