"""Objects of Python classes: attributes in an instance dictionary or in slots, behaviour in the class.

The class is real; the attributes are Values. Subclasses of list, dict, tuple, set and of exceptions keep what their
built-in base holds in `storage`.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.static import HEAP_TYPE, static_lookup
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.reference import ReferenceValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.traceback import Passage, TracebackValue
from stoker.capture.values.value import Arguments, Exhausted, IdentityKey, Keywords, Lazy, Value
from stoker.errors import Break, Raised
from stoker.guard.guard import Holds
from stoker.guard.source import Attribute, Fixed, InstanceDict, Slot, Source
from stoker.marks import why_disabled


class ObjectValue(Value):
    """Anything with a class and perhaps an instance dictionary: the base of instances, functions, classes, modules."""

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        self.cls, self.real, self.source = cls, real, source
        self._attributes: DictValue | None = None
        self.slots: dict[Any, Value | None] = {}

    def python_type(self) -> type:
        return self.cls

    def attributes(self, m: Machine) -> DictValue | None:
        """The instance dictionary, or None for a class without one."""
        if self._attributes is None:
            if self.real is None:
                if not self.cls.__dictoffset__:
                    return None
                self._attributes = DictValue()
            else:
                real = getattr(self.real, "__dict__", None)
                if not isinstance(real, dict) or self.source is None:
                    return None
                self._attributes = m.wrap.dictionary(real, InstanceDict(self.source))
                self._attributes.owner = self.cls
        return self._attributes

    def own_attribute(self, m: Machine, name: str) -> Value | None:
        attributes = self.attributes(m)
        return attributes.lookup(m, Constant(name)) if attributes is not None else None

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.instance(self, self.cls, name)

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        m.attributes.set_instance(self, self.cls, name, value)

    def delete_attribute(self, m: Machine, name: str) -> None:
        m.attributes.delete_instance(self, self.cls, name)

    def slot(self, m: Machine, descriptor: Any) -> Value | None:
        """What a `__slots__` member holds."""
        if descriptor not in self.slots and self.real is not None:
            assert self.source is not None
            try:
                real = descriptor.__get__(self.real)
            except AttributeError:
                m.guards.add(
                    self.source, Holds(lambda now: not _is_filled(descriptor, now), f"has no {descriptor.__name__}")
                )
                return None
            self.slots[descriptor] = m.wrap.at(real, Slot(self.source, descriptor))
        return self.slots.get(descriptor)

    def has_changed(self, m: Machine) -> bool:
        """Has the captured code written to it, so that the real object no longer tells?"""
        attributes = self.attributes(m)
        return bool(self.slots) or (attributes is not None and bool(attributes.written or attributes.rewritten))

    def slot_descriptors(self) -> list[Any]:
        return [raw for base in self.cls.__mro__ for raw in vars(base).values() if _is_slot(raw)]

    def set_slot(self, m: Machine, descriptor: Any, value: Value | None) -> None:
        m.effects.will_mutate(self)
        self.slots[descriptor] = value

    def truth(self, m: Machine) -> bool:
        return True

    def hash_key(self, m: Machine) -> Any:
        return self.real if self.real is not None and self.source is not None else IdentityKey(self)

    def write_back(self, e: Emitting) -> None:
        """Write changed slots; the instance dictionary is a value of its own and writes itself back."""
        for descriptor, value in self.slots.items():
            if value is None:
                e.call_function(type(descriptor).__delete__, [Constant(descriptor), self])
                e.pop()
            else:
                e.call_function(type(descriptor).__set__, [Constant(descriptor), self, value])
                e.pop()


C_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
BASES = (tuple, frozenset, int, float, str, bytes)
HASHED_AS_BASE = tuple(base.__hash__ for base in BASES)
EQUAL_AS_BASE = tuple(base.__eq__ for base in BASES)


BLOCKED = {
    "__iter__": "'{}' object is not iterable",
    "__contains__": "'{}' object is not a container",
    "__reversed__": "'{}' object is not reversible",
}
"""What CPython says where a class has None for a special method."""
RETURNS: dict[str, tuple[type, str]] = {
    "__float__": (float, "{cls}.__float__ returned non-float (type {got})"),
    "__int__": (int, "__int__ returned non-int (type {got})"),
    "__index__": (int, "__index__ returned non-int (type {got})"),
    "__complex__": (complex, "__complex__ returned non-complex (type {got})"),
    "__str__": (str, "__str__ returned non-string (type {got})"),
    "__repr__": (str, "__repr__ returned non-string (type {got})"),
    "__format__": (str, "__format__ must return a str, not {got}"),
    "__hash__": (int, "__hash__ method should return an integer"),
    "__bool__": (bool, "__bool__ should return bool, returned {got}"),
    "__len__": (int, "'{got}' object cannot be interpreted as an integer"),
}
"""What special methods must give, and CPython's words for anything else."""


class InstanceValue(ObjectValue):
    """An instance of a class written in Python."""

    def __init__(self, cls: type, real: Any = None, source: Source | None = None, storage: Value | None = None) -> None:
        super().__init__(cls, real, source)
        self.storage = storage
        self.has_other_dictionary = False  # was its `__dict__` set?

    def set_dictionary(self, m: Machine, new: DictValue) -> None:
        m.effects.will_mutate(self)
        self._attributes, self.has_other_dictionary = new, True

    def has_changed(self, m: Machine) -> bool:
        return self.has_other_dictionary or super().has_changed(m)

    def write_back(self, e: Emitting) -> None:
        super().write_back(e)
        self._write_dictionary(e)

    def _write_dictionary(self, e: Emitting) -> None:
        if self.has_other_dictionary:
            assert self._attributes is not None
            e.method_call(self, object.__setattr__, [Constant("__dict__"), self._attributes])

    def describe(self) -> str:
        return super().describe()

    def special(self, m: Machine, name: str, *args: Value) -> Value | None:
        """Call a special method found on the class, as CPython's slots do; None when the class has none."""
        if m.attributes.class_lookup(self.cls, name) is None and name != "__hash__":
            m.exceptions.raise_(
                TypeError, BLOCKED.get(name, "'NoneType' object is not callable").format(self.cls.__name__)
            )
        method = m.attributes.special_method(self, name)
        found = method.call(m, list(args), {}) if method is not None else None
        wanted, words = RETURNS.get(name, (object, ""))
        if found is not None and not issubclass(found.python_type(), wanted):
            m.exceptions.raise_(TypeError, words.format(cls=self.cls.__name__, got=found.python_type().__name__))
        return found

    def truth(self, m: Machine) -> bool:
        found = self.special(m, "__bool__")
        if found is None:
            found = checked_length(m, self.special(m, "__len__"))
        return True if found is None else found.truth(m)

    def length(self, m: Machine) -> Value:
        found = self.special(m, "__len__")
        if found is None:
            m.exceptions.raise_(TypeError, f"object of type '{self.cls.__name__}' has no len()")
        return checked_length(m, found) or found

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        found = m.attributes.special_method(self, "__call__")
        if found is None:
            m.exceptions.raise_(TypeError, f"'{self.cls.__name__}' object is not callable")
        return found.call(m, args, kwargs)

    def item(self, m: Machine, key: Value) -> Value:
        found = m.attributes.special_method(self, "__getitem__")
        if found is None:
            m.exceptions.raise_(TypeError, f"'{self.cls.__name__}' object is not subscriptable")
        return found.call(m, [key], {})

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        if self.special(m, "__setitem__", key, value) is None:
            m.exceptions.raise_(TypeError, f"'{self.cls.__name__}' object does not support item assignment")

    def delete_item(self, m: Machine, key: Value) -> None:
        if self.special(m, "__delitem__", key) is None:
            m.exceptions.raise_(TypeError, f"'{self.cls.__name__}' object doesn't support item deletion")

    def contains(self, m: Machine, item: Value) -> Value:
        found = self.special(m, "__contains__", item)
        if found is not None:
            return Constant(found.truth(m))
        iterator = self.iterator(m)
        while True:
            try:
                element = iterator.next(m)
            except Exhausted:
                return Constant(False)
            if element is item or m.operators.equal(element, item):
                return Constant(True)

    def iterator(self, m: Machine) -> Value:
        found = self.special(m, "__iter__")
        if found is not None:
            if not hasattr(found.python_type(), "__next__"):
                m.exceptions.raise_(TypeError, f"iter() returned non-iterator of type '{found.python_type().__name__}'")
            return found
        if m.attributes.special_method(self, "__getitem__") is not None:
            return GetItemIterator(self)
        m.exceptions.raise_(TypeError, f"'{self.cls.__name__}' object is not iterable")
        return None

    def next(self, m: Machine) -> Value:
        try:
            found = self.special(m, "__next__")
        except Raised as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                raise Exhausted from None
            raise
        if found is None:
            m.exceptions.raise_(TypeError, f"'{self.cls.__name__}' object is not an iterator")
        return found

    def unary(self, m: Machine, operator: str) -> Value:
        name = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[operator]
        found = self.special(m, name)
        if found is None:
            m.exceptions.raise_(TypeError, f"bad operand type for unary {operator}: '{self.cls.__name__}'")
        return found

    def hash_key(self, m: Machine) -> Any:
        hasher = m.attributes.class_lookup(self.cls, "__hash__")
        if hasher is object.__hash__ or hasher is BaseException.__hash__:
            return IdentityKey(self)
        if self.real is not None and self.source is not None and self.cls.__eq__ is object.__eq__:
            noticed = m.effects.noticed
            if isinstance(hasher, types.FunctionType):
                self.special(m, "__hash__")
            return IdentityKey(self, m.step if m.effects.noticed != noticed else None)
        if hasher is None:
            m.exceptions.raise_(TypeError, f"unhashable type: '{self.cls.__name__}'")
        if (
            self.storage is not None
            and hasher in HASHED_AS_BASE
            and m.attributes.class_lookup(self.cls, "__eq__") in EQUAL_AS_BASE
        ):
            return self.storage.hash_key(m)
        return m.operators.hashed_key(self)

    def constant(self) -> Any:
        if isinstance(self.source, Fixed) and isinstance(self.real, types.UnionType):
            return self.real  # made while capturing, and never changed
        return super().constant()

    def stored(self) -> Value:
        return self.storage if self.storage is not None else self

    def emit(self, e: Emitting) -> None:
        """Made without running the constructor: the constructor was captured."""
        self.emit_empty(e)
        e.name_top(self)
        self.fill(e)

    def emit_empty(self, e: Emitting) -> None:
        """Push the object as `__new__` makes it."""
        storage, cls = self.storage, Constant(self.cls)
        if storage is None:
            base: Any = next(cls for cls in self.cls.__mro__ if not cls.__flags__ & HEAP_TYPE)
            e.call_function(base.__new__, [cls])
            return
        if isinstance(storage, ReferenceValue):
            storage.emit_as(e, self.cls)
            return
        kind = storage.python_type()
        whole = isinstance(storage, (Constant, TupleValue)) or kind is frozenset
        e.call_function(kind.__new__, [cls, storage] if whole else [cls])

    def fill(self, e: Emitting) -> None:
        """Contents of the built-in base, instance dictionary, slots."""
        if self.storage is not None and hasattr(self.storage, "fill"):
            e.names[id(self.storage)] = e.names[id(self)]
            self.storage.fill(e)
        self._write_dictionary(e)
        attributes = self._attributes
        if attributes is not None and attributes._entries and not self.has_other_dictionary:
            if all(isinstance(k.constant(), str) for k, _ in attributes._entries.values()):
                e.load(self)
                e.attribute_of_top("__dict__")
                e.name_top(attributes)
                e.pop()
                attributes.fill(e)
        for descriptor, slot in self.slots.items():
            if slot is not None:
                e.call_function(type(descriptor).__set__, [Constant(descriptor), self, slot])
                e.pop()


class DisabledFunction(InstanceValue):
    """What `stoker.disable` gives: CPython calls it."""

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        name = getattr(self.real.__wrapped__, "__qualname__", type(self.real.__wrapped__).__name__)
        raise Break(f"a call of `{name}`", why_disabled(self.real))


class ExceptionValue(InstanceValue):
    """An exception: an instance with `args`, a cause and a context."""

    def __init__(self, cls: type, args: list[Value], source: Source | None = None, real: Any = None) -> None:
        super().__init__(cls, real, source, storage=TupleValue(args))
        self.links: dict[str, Value] = {}
        self.fields: dict[str, Value] = {}  # what C code wrote to fields that no argument fills
        self.trail: list[Passage] = []  # where it passed in captured code, innermost first
        self.frames: list[Any] = []  # whose variables its traceback keeps alive
        self.below: Value | None = None  # the traceback it was given, or had before the call
        if real is not None and real.__traceback__ is not None:
            assert source is not None
            self.below = Lazy(real.__traceback__, Attribute(source, "__traceback__"))
        self.by_program = False  # did a `raise` statement of captured code make it?
        self._traceback: Value | None = None

    def emit_empty(self, e: Emitting) -> None:
        """Exceptions written in C take fields from their arguments in `__init__`."""
        assert isinstance(self.storage, TupleValue)
        args = self.storage.raw_elements()
        base: Any = next(cls for cls in self.cls.__mro__ if not cls.__flags__ & HEAP_TYPE)
        e.call_function(base.__new__, [Constant(self.cls), *args])
        if base.__init__ is not BaseException.__init__:
            e.name_top(self)
            e.method_call(self, base.__init__, args)

    def fill(self, e: Emitting) -> None:
        super().fill(e)
        self.write_links(e)

    def write_links(self, e: Emitting) -> None:
        for name, link in (self.links | self.fields).items():
            e.store_attribute(self, name, link)
        if self.trail or self.below is not None:
            e.store_attribute(self, "__traceback__", self.traceback())

    def set_args(self, m: Machine, args: list[Value]) -> None:
        m.effects.will_mutate(self)
        self.storage = TupleValue(args)

    def link(self, m: Machine, name: str, value: Value) -> None:
        m.effects.will_mutate(self)
        if name == "__traceback__":
            self.trail, self.below, self._traceback = [], value, None
        else:
            self.links[name] = value

    def was_looked_for(self, name: str, owner: Value) -> None:
        """An AttributeError that leaves a lookup says what was looked for and in what, unless it says so already."""
        if self.source is None and not self.fields.keys() & {"name", "obj"}:
            self.fields |= {"name": Constant(name), "obj": owner}

    def passes(self, m: Machine, passage: Passage) -> None:
        """It leaves a frame, or goes to a handler there: its traceback grows."""
        m.effects.will_mutate(self)
        self.trail.append(passage)
        self._traceback = None

    def take_last_passage(self) -> Passage:
        self._traceback = None
        return self.trail.pop()

    def traceback(self) -> Value:
        if self._traceback is None:
            below = self.below or Constant(None)
            self._traceback = TracebackValue(self.trail[::-1], below) if self.trail else below
        return self._traceback

    def write_back(self, e: Emitting) -> None:
        super().write_back(e)
        assert self.storage is not None
        e.store_attribute(self, "args", self.storage)
        self.write_links(e)

    def own_attribute(self, m: Machine, name: str) -> Value | None:
        if name == "args":
            return self.storage
        if name == "__traceback__":
            return m.wrap.force(self.traceback())
        if name in ("__cause__", "__context__", "__suppress_context__"):
            return self.links.get(name) or self.real_link(m, name)
        if name in ("value", "code") and issubclass(self.cls, (StopIteration, SystemExit)):
            assert isinstance(self.storage, TupleValue)
            args = self.storage.raw_elements()
            return args[0] if args else Constant(None)
        return self.fields.get(name) or super().own_attribute(m, name) or self.filled(m, name)

    def filled(self, m: Machine, name: str) -> Value | None:
        """A field of an exception written in C, as its constructor fills it from known arguments."""
        assert isinstance(self.storage, TupleValue)
        field: Any = static_lookup(self.cls, name)
        if self.source is not None or self.cls.__flags__ & HEAP_TYPE or not isinstance(field, C_FIELDS):
            return None
        made = self.cls(*(m.concrete.constant(a, f"attribute {name!r}") for a in self.storage.elements(m)))
        return m.wrap.constant(getattr(made, name))

    def real_link(self, m: Machine, name: str) -> Value:
        if self.real is not None and self.source is not None:
            return m.wrap.at(getattr(self.real, name), Attribute(self.source, name))
        return Constant(False if name == "__suppress_context__" else None)

    def describe(self) -> str:
        assert isinstance(self.storage, TupleValue)
        args = ", ".join(argument.describe() for argument in self.storage.raw_elements())
        return f"{self.cls.__name__}({args})"


def checked_length(m: Machine, found: Value | None) -> Value | None:
    """What `__len__` gives: a number that a C integer holds."""
    if isinstance(found, Constant):
        if found.value < 0:
            m.exceptions.raise_(ValueError, "__len__() should return >= 0")
        if found.value > sys.maxsize:
            m.exceptions.raise_(OverflowError, "cannot fit 'int' into an index-sized integer")
    return found


def _is_slot(raw: Any) -> bool:
    """A member that a class statement's `__slots__` made, not a field of a built-in type."""
    return isinstance(raw, types.MemberDescriptorType) and bool(raw.__objclass__.__flags__ & HEAP_TYPE)


def _is_filled(descriptor: Any, instance: Any) -> bool:
    try:
        descriptor.__get__(instance)
    except AttributeError:
        return False
    return True


class PreviousException(Value):
    """What PUSH_EXC_INFO leaves on the stack: the exception that was being handled before."""

    def __init__(self, previous: Value | None) -> None:
        self.previous = previous

    def python_type(self) -> type:
        return self.previous.python_type() if self.previous is not None else type(None)


class GetItemIterator(Value):
    """The old iteration protocol: `__getitem__` with 0, 1, 2, ... until IndexError."""

    def __init__(self, sequence: Value) -> None:
        self.sequence, self.position, self.done = sequence, 0, False

    def python_type(self) -> type:
        return type(iter(_Indexable()))

    def iterator(self, m: Machine) -> Value:
        return self

    def next(self, m: Machine) -> Value:
        if self.done:
            raise Exhausted
        try:
            found = self.sequence.item(m, Constant(self.position))
        except Raised as raised:
            if issubclass(raised.value.python_type(), (IndexError, StopIteration)):
                self.done = True
                raise Exhausted from None
            raise
        self.position += 1
        return found

    def emit(self, e: Emitting) -> None:
        if self.done:
            e.call_function(iter, [TupleValue([])])
            return
        e.call_function(iter, [self.sequence])
        e.name_top(self)
        e.call_method_on_top("__setstate__", [Constant(self.position)])


class _Indexable:
    def __getitem__(self, index: int) -> int:
        raise IndexError(index)
