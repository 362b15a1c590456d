"""Where a value is found at the start of a call: a path from the frame's arguments, globals, closure, or a fixed object.

In:  nothing but names, indices and objects.
Out: immutable, hashable paths. `text` is the path as the user would write it; `step` is the guard program's accessor.

Requirements:
  1. Two equal sources denote the same object at the start of the same call.
  2. `follow(source, frame)` in Python finds what the C++ accessor finds (tests/unit/guard/test_source.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, KeysView
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import CellType, FunctionType
from typing import Any, ClassVar


class Source:
    """A place. Subclasses are frozen; `base` is the place this one is reached from, None for roots."""

    base: Source | None
    accessor: ClassVar[str]

    @property
    def text(self) -> str:
        raise NotImplementedError

    @property
    def argument(self) -> Any:
        """What the accessor needs besides the object it starts from."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _hash_by(*fields: str):
    """Give a frozen source class an equality that never calls `__eq__` of a user's object.

    Objects that are not plain data are compared by identity; plain data by type and value, so 1 and True differ.
    """

    def key(self: Any) -> tuple:
        parts: list[Any] = [type(self)]
        for field in fields:
            value = getattr(self, field)
            if isinstance(value, Source):
                parts.append(value)
            elif isinstance(value, (str, int, float, bytes, type(None), bool)):
                parts.append((type(value), value))
            else:
                parts.append(id(value))
        return tuple(parts)

    def decorate(cls: type) -> type:
        def __eq__(self: Any, other: Any) -> bool:
            return self is other or (type(self) is type(other) and key(self) == key(other))

        def __hash__(self: Any) -> int:
            found = self.__dict__.get("_hash")
            if found is None:
                found = hash(key(self))
                object.__setattr__(self, "_hash", found)
            return found

        cls.__eq__ = __eq__  # type: ignore[assignment, method-assign]  # given to each class
        cls.__hash__ = __hash__  # type: ignore[assignment, method-assign]  # given to each class
        return cls

    return decorate


@_hash_by("index")
@dataclass(frozen=True, eq=False, repr=False)
class Local(Source):
    """A bound argument slot of the frame."""

    index: int
    name: str
    base = None
    accessor = "LOCAL"

    @property
    def text(self) -> str:
        name = self.name.replace("__rounds_", "__stack_")
        return name.replace("__stack_", "intermediate value ")  # a parameter of a resume function

    @property
    def argument(self) -> int:
        return self.index


@_hash_by()
@dataclass(frozen=True, eq=False, repr=False)
class Globals(Source):
    """The globals dictionary of the called function."""

    base = None
    accessor = "GLOBALS"
    argument = None

    @property
    def text(self) -> str:
        return "globals()"


@_hash_by("index")
@dataclass(frozen=True, eq=False, repr=False)
class Closure(Source):
    """What a free variable's cell holds."""

    index: int
    name: str
    base = None
    accessor = "CLOSURE"

    @property
    def text(self) -> str:
        return self.name

    @property
    def argument(self) -> int:
        return self.index


@_hash_by("value")
@dataclass(frozen=True, eq=False, repr=False)
class Fixed(Source):
    """One particular object, reachable without the frame: a module's dictionary, a class attribute already guarded.

    A `snapshot` was made while capturing from facts that are guarded elsewhere: nothing below it needs a guard.
    """

    value: Any
    name: str
    snapshot: bool = False
    base = None
    accessor = "CONST"

    @property
    def text(self) -> str:
        return self.name

    @property
    def argument(self) -> Any:
        return self.value


@_hash_by("base", "name")
@dataclass(frozen=True, eq=False, repr=False)
class Attribute(Source):
    """An attribute found by plain `getattr`. Only for attributes whose lookup runs no Python code."""

    base: Source
    name: str
    accessor = "ATTR"

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.name}"

    @property
    def argument(self) -> str:
        return self.name


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class InstanceDict(Source):
    """The `__dict__` of an object."""

    base: Source
    accessor = "DICT"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.__dict__"


@_hash_by("base", "key")
@dataclass(frozen=True, eq=False, repr=False)
class DictItem(Source):
    """The value under a key of a dictionary (exact lookup, no `__missing__`)."""

    base: Source
    key: Any
    accessor = "DICT_ITEM"

    @cached_property
    def text(self) -> str:
        if isinstance(self.base, InstanceDict):
            return f"{self.base.base.text}.{self.key}"
        if isinstance(self.base, (Globals, Fixed)) and isinstance(self.key, str):
            return self.key if isinstance(self.base, Globals) else f"{self.base.text}.{self.key}"
        return f"{self.base.text}[{_key_text(self.key)}]"

    @property
    def argument(self) -> Any:
        return self.key


def _key_text(key: Any) -> str:
    """A key in words that tell it from others. An object's own words may be those of another one, and costly: a parameter of a model that
    an optimizer has under it shows the numbers it holds, which a device would have to be asked for."""
    if type(key) is tuple:
        return f"({', '.join(map(_key_text, key))})"
    named = isinstance(key, (str, int, float, bytes, type(None), Enum, type))
    return repr(key) if named else object.__repr__(key)


@_hash_by("base", "index")
@dataclass(frozen=True, eq=False, repr=False)
class DictKey(Source):
    """The i-th key of a dictionary, in insertion order."""

    base: Source
    index: int
    accessor = "DICT_KEY"

    @property
    def text(self) -> str:
        return f"list({self.base.text})[{self.index}]"

    @property
    def argument(self) -> int:
        return self.index


@_hash_by("base", "index")
@dataclass(frozen=True, eq=False, repr=False)
class Item(Source):
    """An element of a list or tuple (or of a subclass, by the base type's own lookup)."""

    base: Source
    index: int
    accessor = "ITEM"

    @property
    def text(self) -> str:
        return f"{self.base.text}[{self.index}]"

    @property
    def argument(self) -> int:
        return self.index


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class TypeOf(Source):
    base: Source
    accessor = "TYPE"
    argument = None

    @property
    def text(self) -> str:
        return f"type({self.base.text})"


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class CellContents(Source):
    base: Source
    accessor = "CELL"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.cell_contents"


@_hash_by("base", "index")
@dataclass(frozen=True, eq=False, repr=False)
class FunctionCell(Source):
    """The i-th closure cell of a function, as a cell."""

    base: Source
    index: int
    accessor = "FUNC_CLOSURE"

    @property
    def text(self) -> str:
        return f"{self.base.text}.__closure__[{self.index}]"

    @property
    def argument(self) -> int:
        return self.index


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class FunctionDefaults(Source):
    base: Source
    accessor = "FUNC_DEFAULTS"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.__defaults__"


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class FunctionKeywordDefaults(Source):
    base: Source
    accessor = "FUNC_KWDEFAULTS"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.__kwdefaults__"


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class MethodSelf(Source):
    base: Source
    accessor = "METHOD_SELF"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.__self__"


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class MethodFunction(Source):
    base: Source
    accessor = "METHOD_FUNC"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.__func__"


@_hash_by("base")
@dataclass(frozen=True, eq=False, repr=False)
class Referent(Source):
    """What a weak reference refers to."""

    base: Source
    accessor = "WEAKREF"
    argument = None

    @property
    def text(self) -> str:
        return f"{self.base.text}()"


@_hash_by("base", "dimension")
@dataclass(frozen=True, eq=False, repr=False)
class Size(Source):
    """One size of a tensor, as an int."""

    base: Source
    dimension: int
    accessor = "SIZE"

    @property
    def text(self) -> str:
        return f"{self.base.text}.shape[{self.dimension}]"

    @property
    def argument(self) -> int:
        return self.dimension


@_hash_by("base", "dimension")
@dataclass(frozen=True, eq=False, repr=False)
class Stride(Source):
    """One stride of a tensor, as an int."""

    base: Source
    dimension: int
    accessor = "SIZE"

    @property
    def text(self) -> str:
        return f"{self.base.text}.stride({self.dimension})"

    @property
    def argument(self) -> int:
        return ~self.dimension


@_hash_by("base", "descriptor")
@dataclass(frozen=True, eq=False, repr=False)
class Slot(Source):
    """A `__slots__` member, read through its descriptor."""

    base: Source
    descriptor: Any
    accessor = "SLOT"

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.descriptor.__name__}"

    @property
    def argument(self) -> Any:
        return self.descriptor


@_hash_by("base", "question")
@dataclass(frozen=True, eq=False, repr=False)
class Asked(Source):
    """What an object answers to a question of ours, which no other source can express. The question runs no code of the user's."""

    base: Source
    question: Callable[[Any], Any]
    accessor = "ASKED"

    @property
    def text(self) -> str:
        return f"{self.question.__name__.strip('_').replace('_', ' ')} of {self.base.text}"

    @property
    def argument(self) -> Any:
        return self.question


@_hash_by("base", "mapping")
@dataclass(frozen=True, eq=False, repr=False)
class Looked(Source):
    """What a dictionary holds under the key that is found at another place."""

    base: Source
    """Of the key."""
    mapping: Source
    accessor = "ASKED"

    @property
    def text(self) -> str:
        return f"{self.mapping.text}[{self.base.text}]"

    @property
    def argument(self) -> Any:
        raise AssertionError("resolved to a slot by compile_guards")


def look_up(key: Any, mapping: Any) -> Any:
    """What the accessor of `Looked` does. Only an exact dictionary, and a key of plain data: no code of the user's runs."""
    if type(mapping) is not dict or type(key) is not int:
        raise KeyError(key)
    return mapping[key]


def ordered_keys(real: dict) -> KeysView[Any]:
    """The keys of a dictionary or of a subclass, whose own methods are not asked; an OrderedDict keeps an order of its own."""
    return OrderedDict.keys(real) if isinstance(real, OrderedDict) else dict.keys(real)


@dataclass(frozen=True)
class CallPoint:
    """What sources are followed from: the bound slots and the called function."""

    bound: list[Any]
    function: FunctionType


def follow(source: Source, at: CallPoint) -> Any:
    """Find the object, in Python; the words for a failed guard come from here. Raises LookupError if there is none."""
    try:
        return _follow(source, at)
    except (AttributeError, KeyError, IndexError, ValueError, TypeError) as error:
        raise LookupError(f"{source.text} is gone: {error}") from error


def _follow(source: Source, at: CallPoint) -> Any:
    match source:
        case Local(index=index):
            return at.bound[index]
        case Globals():
            return at.function.__globals__
        case Closure(index=index):
            return _cell(at.function, index).cell_contents
        case Fixed(value=value):
            return value
    assert source.base is not None
    found = _follow(source.base, at)
    match source:
        case Attribute(name=name):
            return getattr(found, name)
        case InstanceDict():
            return found.__dict__
        case DictItem(key=key):
            return _item(found, key)
        case DictKey(index=index):
            return list(ordered_keys(found) if isinstance(found, dict) else found)[index]
        case Item(index=index):
            return _element(found, index)
        case TypeOf():
            return type(found)
        case CellContents():
            return found.cell_contents
        case FunctionCell(index=index):
            return _cell(found, index)
        case FunctionDefaults():
            return found.__defaults__
        case FunctionKeywordDefaults():
            return found.__kwdefaults__
        case Referent():
            return found()
        case MethodSelf():
            return found.__self__
        case MethodFunction():
            return found.__func__
        case Size(dimension=dimension):
            return found.shape[dimension]
        case Stride(dimension=dimension):
            return found.stride(dimension)
        case Slot(descriptor=descriptor):
            return descriptor.__get__(found)
        case Asked(question=question):
            return question(found)
        case Looked(mapping=mapping):
            return look_up(found, _follow(mapping, at))
    raise AssertionError(source)


def _item(found: Any, key: Any) -> Any:
    """`dict.__getitem__` would call `__missing__`, which may add the key."""
    if not dict.__contains__(found, key):
        raise KeyError(key)
    return dict.get(found, key)


def _element(found: Any, index: int) -> Any:
    if isinstance(found, tuple):
        return tuple.__getitem__(found, index)
    return list.__getitem__(found, index) if isinstance(found, list) else found[index]


def _cell(function: FunctionType, index: int) -> CellType:
    closure = function.__closure__
    if closure is None:
        raise IndexError(index)
    return closure[index]


def root_of(source: Source) -> Source:
    """Where a place begins. Each place remembers it: places share what they are reached through."""
    if source.base is None:
        return source
    found: Source | None = source.__dict__.get("_root")
    if found is None:
        found = root_of(source.base)
        object.__setattr__(source, "_root", found)
    return found


def looked_through(source: Source) -> Looked | None:
    """The look-up that a place is reached through, if there is one. Each place remembers it."""
    if isinstance(source, Looked):
        return source
    if source.base is None:
        return None
    found: Looked | None | bool = source.__dict__.get("_looked", False)
    if isinstance(found, bool):
        found = looked_through(source.base)
        object.__setattr__(source, "_looked", found)
    return found
