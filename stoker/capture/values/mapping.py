"""Dictionaries and their views, with CPython's order and its rules for equal keys.

Keys are kept by `hash_key`, a stand-in with the equality of the object, beside the key's Value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from types import FunctionType, MappingProxyType
from typing import Any

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.reference import IdentityValue
from stoker.capture.values.sequence import ListValue, TupleValue, is_taken_one_by_one
from stoker.capture.values.sets import SET_TYPES, combine, compare_sets, set_of
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.text import TextValue
from stoker.capture.values.value import MOST_COMPARED, Exhausted, Keywords, Lazy, NotConstant, Value, keep_apart
from stoker.guard.guard import HasKey, LacksKey, Length, TypeIs
from stoker.guard.source import DictItem, Fixed, InstanceDict, Looked, Source, looked_through, ordered_keys


class DictValue(Value):
    """A dict, OrderedDict or defaultdict. One that existed before the call is consulted key by key until it is
    iterated or changed; only then are all its keys guarded. What is stored in it under keys that vary waits: while nobody looks, the keys
    need not be known."""

    def __init__(
        self,
        entries: dict[Any, tuple[Value, Value]] | None = None,
        cls: type[dict] = dict,
        source: Source | None = None,
        real: dict | None = None,
        default_factory: Value | None = None,
    ) -> None:
        self._entries: dict[Any, tuple[Value, Value]] = entries if entries is not None else {}
        self.cls, self.source, self.real = cls, source, real
        self.whole = real is None
        self.default_factory = default_factory
        self._attributes: DictValue | None = None
        self.written: dict[Any, None] = {}
        self.waiting: list[tuple[Value, Value]] = []
        self.rewritten = False
        self.state = 0  # changes with each key that comes, goes or moves
        self.owner: type | None = None  # the class whose instance dictionary this is

    def python_type(self) -> type:
        return self.cls

    def load_all(self, m: Machine) -> dict[Any, tuple[Value, Value]]:
        """Take over every entry of the real dictionary, guarding its keys and their order."""
        self.settle(m)
        if not self.whole:
            assert self.real is not None and self.source is not None
            self.whole = True
            known, self._entries = self._entries, {}
            hashed = _hashed_keys(m, self, self.real, self.source)
            m.guards.keys(self.source, self.real)
            for key, (stand_in, key_value) in zip(ordered_keys(self.real), hashed.items()):
                value = dict.get(self.real, key, END)
                if value is END:
                    self.unsupported("looking at keys whose hash has changed since they were stored")
                place = DictItem(self.source, key)
                self._entries[stand_in] = known.pop(stand_in) if stand_in in known else (key_value, Lazy(value, place))
            self._entries.update(known)
        return self._entries

    def settle(self, m: Machine) -> None:
        """Store what waits: somebody looks."""
        waiting, self.waiting = self.waiting, []
        for key, value in waiting:
            self._store(m, key, value)

    def lookup(self, m: Machine, key: Value) -> Value | None:
        self.settle(m)
        if isinstance(key, SymbolicValue) and (found := _looked_up(m, self, key)) is not None:
            return found
        short = len(self._entries if self.real is None else self.real) <= MOST_COMPARED
        if short and isinstance(key, SymbolicValue) and key.is_none_of(m, self.load_all(m)):
            return None
        return self._found(m, key, key.hash_key(m))

    def _found(self, m: Machine, key: Value, stand_in: Any) -> Value | None:
        """What is held under a key whose hash was asked for: once for each thing that is done, as CPython does."""
        if self.source is not None and (self.rewritten or stand_in in self.written):
            m.effects.noticed += 1
        found = self._entries.get(stand_in)
        if found is None and not self.whole:
            found = self._lookup_real(m, key, stand_in)
        if found is None and isinstance(key, IdentityValue):
            key.refuse_among(self.load_all(m))
        if found is None:
            keep_apart(m, stand_in, self._entries)
            return None
        if type(found[1]) is Lazy:
            found = self._entries[stand_in] = (found[0], m.wrap.force(found[1]))
        return found[1]

    def _lookup_real(self, m: Machine, key: Value, stand_in: Any) -> tuple[Value, Value] | None:
        assert self.real is not None and self.source is not None
        try:
            plain = key.constant()
        except NotConstant:
            return self.load_all(m).get(stand_in)
        if not dict.__contains__(self.real, plain):
            m.guards.add(self.source, LacksKey(plain))
            return None
        m.guards.add(self.source, HasKey(plain))
        place = DictItem(self.source, plain)
        found = self._entries[stand_in] = (key, Lazy(dict.__getitem__(self.real, plain), place))
        return found

    def store(self, m: Machine, key: Value, value: Value) -> None:
        m.effects.will_mutate(self)
        if not self.whole and isinstance(key, (SymbolicValue, TextValue)):
            self.waiting.append((key, value))
        else:
            self.settle(m)
            self._store(m, key, value)

    def _store(self, m: Machine, key: Value, value: Value, stand_in: Any = None) -> None:
        stand_in = key.hash_key(m) if stand_in is None else stand_in
        found = self._entries.get(stand_in)
        if found is None and not self.whole:
            found = self._lookup_real(m, key, stand_in)
        if found is None:
            keep_apart(m, stand_in, self._entries)
        self.state += found is None
        self._entries[stand_in] = (found[0] if found else key, value)
        self.written[stand_in] = None

    def remove(self, m: Machine, key: Value) -> Value:
        self.settle(m)
        stand_in = key.hash_key(m)
        found = self._found(m, key, stand_in)
        if found is None:
            m.exceptions.raise_(KeyError, key)
        m.effects.will_mutate(self)
        self.rewritten = True
        self.state += 1
        del self.load_all(m)[stand_in]
        self.written.pop(stand_in, None)
        return found

    def keys(self, m: Machine) -> list[Value]:
        return [key for key, _ in self.load_all(m).values()]

    def hashed_elements(self, m: Machine) -> list[tuple[Any, Value]] | None:
        return [(stand_in, key) for stand_in, (key, _) in self.load_all(m).items()]

    def pairs(self, m: Machine) -> list[tuple[Value, Value]]:
        entries = self.load_all(m)
        for stand_in, (key, value) in entries.items():
            if type(value) is Lazy:
                entries[stand_in] = (key, m.wrap.force(value))
        return list(entries.values())

    def length(self, m: Machine) -> Value:
        if not self.whole and not self.written and not self.waiting:
            assert self.real is not None and self.source is not None
            m.guards.add(self.source, Length(len(self.real)))
            return Constant(len(self.real))
        return Constant(len(self.load_all(m)))

    def truth(self, m: Machine) -> bool:
        return bool(self.length(m).constant())

    def item(self, m: Machine, key: Value) -> Value:
        found = self.lookup(m, key)
        if found is not None:
            return found
        if self.default_factory is not None and not _is_none(self.default_factory):
            made = self.default_factory.call(m, [], {})
            self.store(m, key, made)
            return made
        m.exceptions.raise_(KeyError, key)
        return None

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        self.store(m, key, value)

    def delete_item(self, m: Machine, key: Value) -> None:
        self.remove(m, key)

    def contains(self, m: Machine, item: Value) -> Value:
        return Constant(self.lookup(m, item) is not None)

    def iterator(self, m: Machine) -> Value:
        return ViewIterator(self, "keys", m)

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        other = other.stored()
        if operator not in ("==", "!=") or not isinstance(other, DictValue):
            return None
        mine, theirs = self.pairs(m), other.pairs(m)
        ordered = issubclass(self.cls, OrderedDict) and issubclass(other.cls, OrderedDict)
        same = len(mine) == len(theirs) and (
            not ordered or [k.hash_key(m) for k, _ in mine] == [k.hash_key(m) for k, _ in theirs]
        )
        for key, value in mine if same else ():
            match = other.lookup(m, key)
            if match is None or not (match is value or m.operators.equal(value, match)):
                same = False
                break
        return Constant(same == (operator == "=="))

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        other_dict = other.stored()
        if operator == "|" and isinstance(other_dict, DictValue) and not reflected:
            kind = other_dict if self.cls is dict and other_dict.cls is not dict else self
            merged = DictValue(dict(self.load_all(m)), kind.cls, default_factory=kind.default_factory)
            merged.method_update(m, other)
            return merged
        if operator == "|=" and not reflected:
            self.method_update(m, other)
            return self
        if operator == "|" and isinstance(
            other_dict, DictValue
        ):  # of a class whose own `|` has declined, as Counter's does
            merged = DictValue({}, self.cls, default_factory=self.default_factory)
            merged.method_update(m, other)
            merged.method_update(m, self)
            return merged
        return None

    def attribute(self, m: Machine, name: str) -> Value:
        if name == "default_factory" and self.default_factory is not None:
            return self.default_factory
        own = self.attributes(m) if issubclass(self.cls, OrderedDict) else None
        found = own.lookup(m, Constant(name)) if own is not None else None
        return found if found is not None else m.attributes.builtin(self, name)

    def attributes(self, m: Machine) -> DictValue:
        """The instance dictionary that an OrderedDict has."""
        if self._attributes is None:
            real = getattr(self.real, "__dict__", None)
            if isinstance(real, dict) and self.source is not None:
                self._attributes = m.wrap.dictionary(real, InstanceDict(self.source))
            else:
                self._attributes = DictValue()
        return self._attributes

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        if name == "default_factory" and self.default_factory is not None and self.source is None:
            self.default_factory = value
            return
        if name == "default_factory" and self.default_factory is not None:
            self.unsupported("assignment to attribute 'default_factory'")
        if not issubclass(self.cls, OrderedDict):
            m.exceptions.no_attribute(self.cls, name)
        self.attributes(m).store(m, Constant(name), value)

    def method_get(self, m: Machine, key: Value, default: Value = Constant(None)) -> Value:  # noqa: B008
        found = self.lookup(m, key)
        return found if found is not None else default

    def method_keys(self, m: Machine) -> Value:
        return DictView(self, "keys")

    def method_values(self, m: Machine) -> Value:
        return DictView(self, "values")

    def method_items(self, m: Machine) -> Value:
        return DictView(self, "items")

    def method_setdefault(self, m: Machine, key: Value, default: Value = Constant(None)) -> Value:  # noqa: B008
        if isinstance(key, (SymbolicValue, TextValue)):
            found = self.lookup(m, key)
            if found is None:
                self.store(m, key, default)
            return default if found is None else found
        self.settle(m)
        stand_in = key.hash_key(m)
        found = self._found(m, key, stand_in)
        if found is None:
            m.effects.will_mutate(self)
            self._store(m, key, default, stand_in)
        return default if found is None else found

    def method_pop(self, m: Machine, key: Value, default: Value | None = None) -> Value:
        if default is not None and self.lookup(m, key) is None:
            return default
        return self.remove(m, key)

    def method_popitem(self, m: Machine, last: Value = Constant(True)) -> Value:  # noqa: B008
        entries = self.load_all(m)
        if not entries:
            m.exceptions.raise_(KeyError, "popitem(): dictionary is empty")
        key = list(entries.values())[-1 if last.truth(m) else 0][0]
        return TupleValue([key, self.remove(m, key)])

    def method_update(self, m: Machine, *others: Value, **kwargs: Value) -> Value:
        for other in others:
            for key, value in each_pair(m, other, "dict mutated during update"):
                self.store(m, key, value)
        for name, value in kwargs.items():
            self.store(m, Constant(name), value)
        return Constant(None)

    def method_clear(self, m: Machine) -> Value:
        m.effects.will_mutate(self)
        self.whole = self.rewritten = True
        self.waiting.clear()
        self.written.clear()
        self._entries.clear()
        return Constant(None)

    def method_copy(self, m: Machine) -> Value:
        return DictValue(dict(self.load_all(m)), self.cls, default_factory=self.default_factory)

    def method_move_to_end(self, m: Machine, key: Value, last: Value = Constant(True)) -> Value:  # noqa: B008
        value = self.remove(m, key)
        entry = (key, value)
        if last.truth(m):
            self._entries[key.hash_key(m)] = entry
        else:
            self._entries = {key.hash_key(m): entry, **self._entries}
        return Constant(None)

    def hash_key(self, m: Machine) -> Any:
        m.exceptions.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")

    def emit(self, e: Emitting) -> None:
        if self.cls is dict:
            e.build_then_fill(self, "BUILD_MAP", [], lambda: self.fill(e))
            return
        arguments = [] if self.default_factory is None else [self.default_factory]
        e.call_function(self.cls, arguments)
        e.name_top(self)
        self.fill(e)

    def fill(self, e: Emitting) -> None:
        e.refuse_asking_again(self._entries)
        for key, value in self._entries.values():
            e.method_call(self, self.cls.__setitem__, [key, value])
        for key, value in self._attributes._entries.values() if self._attributes is not None else ():
            e.store_attribute(self, key.constant(), value)

    def write_back(self, e: Emitting) -> None:
        """Write only the keys that were set, unless an entry went away or moved."""
        if self.rewritten:
            e.method_call(self, self.cls.clear, [])
            self.fill(e)
            return
        e.refuse_asking_again(self.written)
        for stand_in in self.written:
            e.method_call(self, self.cls.__setitem__, list(self._entries[stand_in]))
        for key, value in self.waiting:
            e.method_call(self, self.cls.__setitem__, [key, value])


def _hashed_keys(m: Machine, mapping: DictValue, real: dict, source: Source) -> dict[Any, Value]:
    """The keys behind their stand-ins. CPython has asked them for their hashes when they were stored; nobody may notice that we ask again."""
    if isinstance(real, OrderedDict) and any(map(_hashes_itself, dict.keys(real))):
        mapping.unsupported("looking at keys with a __hash__ of their own, which going over an OrderedDict asks for")
    noticed, hashed = m.effects.noticed, {}
    for index, key in enumerate(ordered_keys(real)):
        key_value = m.wrap.key(key, source, index)
        hashed[key_value.hash_key(m)] = key_value
    if m.effects.noticed != noticed or len(hashed) != len(real):
        mapping.unsupported("looking at keys whose own __hash__ or __eq__ changes something")
    return hashed


def _hashes_itself(key: Any) -> bool:
    """Has the class of a key, or of a part of it, a hash that the program has written?"""
    if type(key) in (tuple, frozenset):
        return any(map(_hashes_itself, key))
    return isinstance(type(key).__hash__, FunctionType) and not isinstance(key, Enum)


def pairs_of(m: Machine, value: Value) -> list[tuple[Value, Value]]:
    """What `dict(value)` takes from its argument."""
    return list(each_pair(m, value))


def each_pair(m: Machine, value: Value, changed: str = "") -> Iterator[tuple[Value, Value]]:
    """What `d.update(value)` takes from its argument, one by one: an error in the middle leaves what came before it. `changed`: the words
    of the error where taking a pair changes the size of what they come from."""
    storage = value.stored()
    own = m.attributes.class_lookup(value.python_type(), "__iter__") if storage is not value else None
    if isinstance(storage, DictValue) and not isinstance(own, FunctionType):
        pairs = storage.pairs(m)
        for pair in pairs:
            yield pair
            if changed and len(storage.load_all(m)) != len(pairs):
                m.exceptions.raise_(RuntimeError, changed)
        return
    if m.operators.has_attribute(value, "keys"):
        for key in value.attribute(m, "keys").call(m, [], {}).items_list(m):
            yield key, m.operators.item(value, key)
        return
    for index, element in enumerate(_each(m, value)):
        if not hasattr(element.python_type(), "__iter__"):
            m.exceptions.raise_(TypeError, f"cannot convert dictionary update sequence element #{index} to a sequence")
        parts = element.items_list(m)
        if len(parts) != 2:
            m.exceptions.raise_(
                ValueError, f"dictionary update sequence element #{index} has length {len(parts)}; 2 is required"
            )
        yield parts[0], parts[1]


def _each(m: Machine, value: Value) -> Iterator[Value]:
    if not is_taken_one_by_one(value):
        yield from value.items_list(m)
        return
    iterator = m.operators.iterate(value)
    while True:
        try:
            element = iterator.next(m)
        except Exhausted:
            return
        yield element


def dict_from(m: Machine, cls: type, args: list[Value], kwargs: Keywords) -> DictValue:
    made = DictValue(cls=cls)
    for argument in args:
        for key, value in pairs_of(m, argument):
            made._entries[key.hash_key(m)] = (key, value)
    for name, value in kwargs.items():
        made._entries[name] = (Constant(name), value)
    return made


class DictView(Value):
    """`d.keys()`, `d.values()`, `d.items()`: a window on the dictionary."""

    def __init__(self, mapping: DictValue, what: str) -> None:
        self.mapping, self.what = mapping, what

    def python_type(self) -> type:
        return type(getattr(self.mapping.cls(), self.what)())

    def elements(self, m: Machine) -> list[Value]:
        if self.what == "keys":
            return self.mapping.keys(m)
        if self.what == "values":
            return [value for _, value in self.mapping.pairs(m)]
        return [TupleValue([key, value]) for key, value in self.mapping.pairs(m)]

    def iterator(self, m: Machine) -> Value:
        return ViewIterator(self.mapping, self.what, m)

    def length(self, m: Machine) -> Value:
        return self.mapping.length(m)

    def truth(self, m: Machine) -> bool:
        return self.mapping.truth(m)

    def contains(self, m: Machine, item: Value) -> Value:
        if self.what == "keys":
            return self.mapping.contains(m, item)
        return ListValue(self.elements(m)).contains(m, item)

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator not in ("&", "|", "-", "^") or self.what == "values":
            return None
        return combine(m, operator, other, self) if reflected else combine(m, operator, self, other)

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if self.what == "values" or not issubclass(other.python_type(), SET_TYPES):
            return None
        return compare_sets(m, operator, self, other)

    def attribute(self, m: Machine, name: str) -> Value:
        if name == "mapping":
            return m.wrap.object(MappingProxyType).call(m, [self.mapping], {})
        if name == "isdisjoint":
            return set_of(m, self).attribute(m, name)
        return m.attributes.builtin(self, name)

    def emit(self, e: Emitting) -> None:
        e.call_function(getattr(self.mapping.python_type(), self.what), [self.mapping])


END = object()


class ViewIterator(Value):
    """An iterator over a dictionary. CPython's own goes over the stand-ins: changes under it are its RuntimeErrors."""

    def __init__(self, mapping: DictValue, what: str, m: Machine) -> None:
        self.mapping, self.what, self.position = mapping, what, 0
        entries = mapping.load_all(m)
        self.size, self.state, self.stand_ins = len(entries), mapping.state, iter(entries)

    def python_type(self) -> type:
        return type(iter(getattr(self.mapping.cls(), self.what)()))

    def iterator(self, m: Machine) -> Value:
        return self

    def next(self, m: Machine) -> Value:
        entries, ordered = self.mapping.load_all(m), issubclass(self.mapping.cls, OrderedDict)
        if ordered and self.position >= self.size:  # which knows its next element when it gives one
            raise Exhausted
        if ordered and (self.mapping.state != self.state or len(entries) != self.size):
            happened = "mutated" if self.mapping.state != self.state else "changed size"
            m.exceptions.raise_(RuntimeError, f"OrderedDict {happened} during iteration")
        stand_in = m.concrete.run(next, self.stand_ins, END)
        if stand_in is END:
            raise Exhausted
        self.position += 1
        key, value = entries[stand_in]
        if self.what == "keys":
            return key
        if type(value) is Lazy:
            value = m.wrap.force(value)
            entries[stand_in] = (key, value)
        return value if self.what == "values" else TupleValue([key, value])

    def emit(self, e: Emitting) -> None:
        if len(self.mapping._entries) != self.size:
            e.call_function(_changed_iterator, [Constant(self.what)])
            return
        e.call_function(_advanced_iterator, [self.mapping, Constant(self.what), Constant(self.position)])


def _advanced_iterator(mapping: dict, what: str, position: int) -> Any:
    """An iterator over a dictionary that has already given `position` elements."""
    iterator = iter(getattr(mapping, what)())
    for _ in range(position):
        next(iterator)
    return iterator


def _changed_iterator(what: str) -> Any:
    """An iterator over a dictionary that has changed its size since."""
    mapping = {0: 0}
    iterator = iter(getattr(mapping, what)())
    mapping[1] = 1
    return iterator


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None


def _looked_up(m: Machine, mapping: DictValue, key: SymbolicValue) -> Value | None:
    """A tensor or a number under a key that varies: found anew at each call, whatever the key is then."""
    place, source, real = m.sizes.place_of(key.symbol), mapping.source, mapping.real
    if place is None or source is None or isinstance(source, Fixed) or looked_through(source) is not None:
        return None
    if type(real) is not dict or mapping.whole or mapping.written or mapping.rewritten:
        return None
    held = real.get(int(key.symbol.node.hint))
    if type(held) not in (int, float, torch.Tensor, torch.nn.Parameter):
        return None
    found = Looked(place, source)
    m.guards.add(found, TypeIs(type(held)))
    return m.wrap.at(held, found)
