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
from typing import Any, ClassVar, TypeVar, dataclass_transform


class Source:
    """A place. Subclasses are frozen; `base` is the place this one is reached from, None for roots."""

    base: Source | None
    accessor: ClassVar[str]
    words: ClassVar[str]
    named: ClassVar[str | None]
    finds: ClassVar[Callable[..., Any]]

    @cached_property
    def text(self) -> str:
        fields = {name: part.text if isinstance(part, Source) else part for name, part in self.__dict__.items()}
        return self.words.format(**fields)

    @property
    def argument(self) -> Any:
        """What the accessor needs besides the object it starts from."""
        return None if self.named is None else getattr(self, self.named)

    @property
    def beside(self) -> tuple[Source, ...]:
        """Other places that are looked at to find this one."""
        return ()

    def __repr__(self) -> str:
        return f"<{self.text}>"

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and _key(self) == _key(other))  # type: ignore[arg-type]  # of its type

    def __hash__(self) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash(_key(self))
            object.__setattr__(self, "_hash", found)
        return found


def _key(source: Source) -> tuple[Any, ...]:
    """What sources are compared by: never by `__eq__` of a user's object. Objects that are not plain data are compared by identity; plain
    data by type and value, so 1 and True differ."""
    parts: list[Any] = [type(source), source.base]
    if source.named is not None:
        value = getattr(source, source.named)
        if isinstance(value, Source):
            parts.append(value)
        elif isinstance(value, (str, int, float, bytes, type(None), bool)):
            parts.append((type(value), value))
        else:
            parts.append(id(value))
    parts += source.beside
    return tuple(parts)


Kind = TypeVar("Kind", bound=type[Source])


@dataclass_transform(frozen_default=True, eq_default=False)
def _place(
    accessor: str, words: str, named: str | None = None, finds: Callable[..., Any] | None = None
) -> Callable[[Kind], Kind]:
    """A kind of place: its accessor, its text, the field that tells it from others at the same base, and how it is found in Python, from
    the object there and that field."""

    def decorate(cls: Kind) -> Kind:
        cls.accessor, cls.words, cls.named = accessor, words, named
        if finds is not None:
            cls.finds = staticmethod(finds)
        dataclass(frozen=True, eq=False, repr=False)(cls)
        return cls

    return decorate


def ordered_keys(real: dict) -> KeysView[Any]:
    """The keys of a dictionary or of a subclass, whose own methods are not asked; an OrderedDict keeps an order of its own."""
    return OrderedDict.keys(real) if isinstance(real, OrderedDict) else dict.keys(real)


def _key_at(found: Any, index: int) -> Any:
    return list(ordered_keys(found) if isinstance(found, dict) else found)[index]


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


@_place("LOCAL", "{name}", "index")
class Local(Source):
    """A bound argument slot of the frame."""

    index: int
    name: str
    base = None

    @cached_property
    def text(self) -> str:
        name = self.name.replace("__rounds_", "__stack_")
        return name.replace("__stack_", "intermediate value ")  # a parameter of a resume function


@_place("GLOBALS", "globals()")
class Globals(Source):
    """The globals dictionary of the called function."""

    base = None


@_place("CLOSURE", "{name}", "index")
class Closure(Source):
    """What a free variable's cell holds."""

    index: int
    name: str
    base = None


@_place("CONST", "{name}", "value")
class Fixed(Source):
    """One particular object, reachable without the frame: a module's dictionary, a class attribute already guarded.

    A `snapshot` was made while capturing from facts that are guarded elsewhere: nothing below it needs a guard.
    """

    value: Any
    name: str
    snapshot: bool = False
    base = None


@_place("ATTR", "{base}.{name}", "name", getattr)
class Attribute(Source):
    """An attribute found by plain `getattr`. Only for attributes whose lookup runs no Python code."""

    base: Source
    name: str


@_place("DICT", "{base}.__dict__", finds=lambda found: found.__dict__)
class InstanceDict(Source):
    """The `__dict__` of an object."""

    base: Source


@_place("DICT_ITEM", "{base}[{key}]", "key", _item)
class DictItem(Source):
    """The value under a key of a dictionary (exact lookup, no `__missing__`)."""

    base: Source
    key: Any

    @cached_property
    def text(self) -> str:
        if isinstance(self.base, InstanceDict):
            return f"{self.base.base.text}.{self.key}"
        if isinstance(self.base, (Globals, Fixed)) and isinstance(self.key, str):
            return self.key if isinstance(self.base, Globals) else f"{self.base.text}.{self.key}"
        return f"{self.base.text}[{_key_text(self.key)}]"


def _key_text(key: Any) -> str:
    """A key in words that tell it from others. An object's own words may be those of another one, and costly: a parameter of a model that
    an optimizer has under it shows the numbers it holds, which a device would have to be asked for."""
    if type(key) is tuple:
        return f"({', '.join(map(_key_text, key))})"
    named = isinstance(key, (str, int, float, bytes, type(None), Enum, type))
    return repr(key) if named else object.__repr__(key)


@_place("DICT_KEY", "list({base})[{index}]", "index", _key_at)
class DictKey(Source):
    """The i-th key of a dictionary, in insertion order."""

    base: Source
    index: int


@_place("ITEM", "{base}[{index}]", "index", _element)
class Item(Source):
    """An element of a list or tuple (or of a subclass, by the base type's own lookup)."""

    base: Source
    index: int


@_place("TYPE", "type({base})", finds=type)
class TypeOf(Source):
    base: Source


@_place("CELL", "{base}.cell_contents", finds=lambda found: found.cell_contents)
class CellContents(Source):
    base: Source


@_place("FUNC_CLOSURE", "{base}.__closure__[{index}]", "index", _cell)
class FunctionCell(Source):
    """The i-th closure cell of a function, as a cell."""

    base: Source
    index: int


@_place("FUNC_DEFAULTS", "{base}.__defaults__", finds=lambda found: found.__defaults__)
class FunctionDefaults(Source):
    base: Source


@_place("FUNC_KWDEFAULTS", "{base}.__kwdefaults__", finds=lambda found: found.__kwdefaults__)
class FunctionKeywordDefaults(Source):
    base: Source


@_place("METHOD_SELF", "{base}.__self__", finds=lambda found: found.__self__)
class MethodSelf(Source):
    base: Source


@_place("METHOD_FUNC", "{base}.__func__", finds=lambda found: found.__func__)
class MethodFunction(Source):
    base: Source


@_place("WEAKREF", "{base}()", finds=lambda found: found())
class Referent(Source):
    """What a weak reference refers to."""

    base: Source


@_place("SIZE", "{base}.shape[{dimension}]", "dimension", lambda found, dimension: found.shape[dimension])
class Size(Source):
    """One size of a tensor, as an int."""

    base: Source
    dimension: int


@_place("SIZE", "{base}.stride({dimension})", "dimension", lambda found, dimension: found.stride(dimension))
class Stride(Source):
    """One stride of a tensor, as an int."""

    base: Source
    dimension: int

    @property
    def argument(self) -> int:
        return ~self.dimension


@_place("SLOT", "{base}.{descriptor.__name__}", "descriptor", lambda found, descriptor: descriptor.__get__(found))
class Slot(Source):
    """A `__slots__` member, read through its descriptor."""

    base: Source
    descriptor: Any


@_place("ASKED", "{question} of {base}", "question", lambda found, question: question(found))
class Asked(Source):
    """What an object answers to a question of ours, which no other source can express. The question runs no code of the user's."""

    base: Source
    question: Callable[[Any], Any]

    @cached_property
    def text(self) -> str:
        return f"{self.question.__name__.strip('_').replace('_', ' ')} of {self.base.text}"


@_place("ASKED", "{mapping}[{base}]", "mapping")
class Looked(Source):
    """What a dictionary holds under the key that is found at another place."""

    base: Source
    """Of the key."""
    mapping: Source

    @property
    def argument(self) -> Any:
        raise AssertionError("resolved to a slot by compile_guards")

    @property
    def beside(self) -> tuple[Source, ...]:
        return (self.mapping,)

    @property
    def question(self) -> Callable[..., Any]:
        return look_up


@_place("ASKED", "{base}[{words_of_key}]", "question")
class Remembered(Source):
    """What an object answers to a question about objects that are found at other places. The question runs no code of the user's."""

    base: Source
    question: Callable[..., Any]
    others: tuple[Source, ...]
    words_of_key: str

    @property
    def argument(self) -> Any:
        raise AssertionError("resolved to slots by compile_guards")

    @property
    def beside(self) -> tuple[Source, ...]:
        return self.others


def look_up(key: Any, mapping: Any) -> Any:
    """What the accessor of `Looked` does. Only an exact dictionary, and a key of plain data: no code of the user's runs."""
    if type(mapping) is not dict or type(key) is not int:
        raise KeyError(key)
    return mapping[key]


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
    if isinstance(source, (Looked, Remembered)):
        return source.question(found, *(_follow(other, at) for other in source.beside))
    return source.finds(found) if source.named is None else source.finds(found, getattr(source, source.named))


def root_of(source: Source) -> Source:
    """Where a place begins. Each place remembers it: places share what they are reached through."""
    if source.base is None:
        return source
    found: Source | None = source.__dict__.get("_root")
    if found is None:
        found = root_of(source.base)
        object.__setattr__(source, "_root", found)
    return found


def looked_through(source: Source) -> Looked | Remembered | None:
    """The look-up that a place is reached through, if there is one. Each place remembers it."""
    if isinstance(source, (Looked, Remembered)):
        return source
    if source.base is None:
        return None
    found: Looked | Remembered | None | bool = source.__dict__.get("_looked", False)
    if isinstance(found, bool):
        found = looked_through(source.base)
        object.__setattr__(source, "_looked", found)
    return found


def rounds_of_looking(source: Source) -> int:
    """How many look-ups come one after the other before a place is found: each needs what those before it have found."""
    found = looked_through(source)
    if found is None:
        return 0
    return 1 + max(rounds_of_looking(place) for place in (found.base, *found.beside))
