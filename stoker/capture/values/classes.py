"""Classes and `super()`."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.static import HEAP_TYPE, MISSING, static_lookup
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.function import FunctionValue
from stoker.capture.values.instance import ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.proxy import ProxyValue, mapping_behind, namespace
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Arguments, Keywords, Lazy, MadePart, Value
from stoker.guard.source import Asked, Fixed, Source


class ClassValue(ObjectValue):
    """A class. Classes are real objects: captured code may call and inspect them, not change them."""

    has_identity = False

    def __init__(self, real: type, source: Source | None = None) -> None:
        super().__init__(type(real), real, source)

    def describe(self) -> str:
        return f"class `{self.real.__qualname__}`"

    def constant(self) -> Any:
        return self.real

    def hash_key(self, m: Machine) -> Any:
        return self.real

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        return m.calls.class_(self.real, args, kwargs)

    def attribute(self, m: Machine, name: str) -> Value:
        cls = self.real
        match name:
            case "__mro__" | "__bases__":
                return TupleValue([m.wrap.object(base) for base in self.told(m, name)])
            case "__class__":
                return m.wrap.object(type(cls))
            case "__name__" | "__qualname__" | "__module__" | "__doc__" | "__abstractmethods__":
                return m.wrap.constant(self.told(m, name))
            case "__dict__":
                return self.namespace(m)
        getter = m.attributes.class_lookup(type(cls), "__getattribute__")
        if isinstance(getter, types.FunctionType):
            self.unsupported("a metaclass with a __getattribute__")
        meta = m.attributes.class_lookup(type(cls), name)
        if meta is not static_lookup(type, name) and m.attributes.is_data_descriptor(meta):
            return m.attributes.bind(meta, self, type(cls))
        found = m.attributes.class_lookup(cls, name)
        if found is not MISSING:
            return m.attributes.bind_to_class(found, self)
        if meta is not MISSING:
            return m.attributes.bind(meta, self, type(cls))
        fallback = m.attributes.class_lookup(type(cls), "__getattr__")
        if fallback is not MISSING:
            return m.attributes.bind(fallback, self, type(cls)).call(m, [Constant(name)], {})
        m.exceptions.raise_(AttributeError, f"type object '{cls.__name__}' has no attribute '{name}'")
        return None

    def namespace(self, m: Machine) -> Value:
        """A view of what the class holds. Captured code does not change that, code behind a break may: the view is loaded, not rebuilt."""
        m.attributes.view(mapping_behind(namespace(self.real)))
        found = m.guards.ask(self.place(), self.real, lambda now: dict(namespace(now)), "has the same namespace")
        entries: dict[Any, tuple[Value, Value]] = {
            key: (m.wrap.constant(key), Lazy(value, Fixed(value, f"{self.real.__qualname__}.{key}")))
            for key, value in found.items()
        }
        view = Asked(self.place(), namespace)
        return ProxyValue(DictValue(entries, source=Asked(view, mapping_behind)), view)

    def place(self) -> Fixed:
        return Fixed(self.real, self.real.__qualname__)

    def told(self, m: Machine, name: str) -> Any:
        """A field of the class; those of a type written in C do not change."""
        if not self.real.__flags__ & HEAP_TYPE:
            return m.concrete.run(getattr, self.real, name)
        return m.guards.ask(self.place(), self.real, lambda now: getattr(now, name), f"has the same {name}")

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        setter = m.attributes.class_lookup(type(self.real), "__setattr__")
        if isinstance(setter, types.FunctionType):
            m.attributes.bind(setter, self, type(self.real)).call(m, [Constant(name), value], {})
        else:
            m.attributes.set_on_class(self.real, name, value)

    def delete_attribute(self, m: Machine, name: str) -> None:
        deleter = m.attributes.class_lookup(type(self.real), "__delattr__")
        if isinstance(deleter, types.FunctionType):
            m.attributes.bind(deleter, self, type(self.real)).call(m, [Constant(name)], {})
        else:
            m.attributes.set_on_class(self.real, name, None)

    def item(self, m: Machine, key: Value) -> Value:
        meta = m.attributes.class_lookup(type(self.real), "__getitem__")
        if issubclass(self.real, enum.Enum):
            return m.wrap.object(m.concrete.run(lambda: self.real[m.concrete.constant(key, "an enum's name")]))
        if meta is not MISSING:
            return m.attributes.bind(meta, self, type(self.real)).call(m, [key], {})
        given = m.concrete.annotation(key, "subscripting a class")
        made = m.concrete.run(lambda: self.real[given])
        return m.wrap.constant(made) if type(made) is types.GenericAlias else m.wrap.object(made)

    def iterator(self, m: Machine) -> Value:
        found = m.attributes.class_lookup(type(self.real), "__iter__")
        if isinstance(found, types.FunctionType) and not issubclass(self.real, enum.Enum):
            return m.attributes.bind(found, self, type(self.real)).call(m, [], {}).iterator(m)
        return TupleValue([m.wrap.object(member) for member in self.members(m)]).iterator(m)

    def members(self, m: Machine) -> list[Any]:
        return m.guards.ask(self.place(), self.real, list, "has the same members")

    def length(self, m: Machine) -> Value:
        found = m.attributes.class_lookup(type(self.real), "__len__")
        if isinstance(found, types.FunctionType) and not issubclass(self.real, enum.Enum):
            return m.attributes.bind(found, self, type(self.real)).call(m, [], {})
        return Constant(len(self.members(m)))

    def contains(self, m: Machine, item: Value) -> Value:
        found = m.attributes.class_lookup(type(self.real), "__contains__")
        if isinstance(found, types.FunctionType) and not issubclass(self.real, enum.Enum):
            return m.attributes.bind(found, self, type(self.real)).call(m, [item], {})
        needle = m.concrete.constant(item, "the `in` operator")
        return Constant(
            m.guards.ask(self.place(), self.real, lambda now: needle in now, f"answers for {needle!r} as before")
        )

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        if operator == "|":
            parts = [self.real, m.concrete.constant(other, "a union of types")]
            return m.wrap.object(parts[1] | parts[0] if reflected else parts[0] | parts[1])
        return None

    def emit(self, e: Emitting) -> None:
        e.const(self.real)


class MadeClass(ClassValue):
    """A class that was made while capturing, by `maker(*args, **kwargs)`. Where it, or an object of it, outlives the captured code,
    each call makes it so again, behind the graph."""

    has_identity = True

    def __init__(self, m: Machine, real: type, maker: Callable[..., Any], args: Arguments, kwargs: Keywords) -> None:
        super().__init__(real)
        self.maker, self.args, self.kwargs = maker, args, kwargs
        m.wrap.known[id(real)] = (self, real)
        m.made_classes[real] = MadePart(real, self, (), m.step)
        m.made_parts |= {id(held): MadePart(held, self, path, m.step) for held, path in parts_held(real)}

    def emit(self, e: Emitting) -> None:
        for argument in self.args:
            if isinstance(argument, FunctionValue) and id(argument.globals) in e.m.effects.mutated:
                e.refuse_made_class(self.real)  # its body would see globals as they are afterwards
        e.call_function(self.maker, list(self.args), self.kwargs)


INNER = {property: ("fget", "fset", "fdel"), staticmethod: ("__func__",), classmethod: ("__func__",)}


def parts_held(cls: type) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """The class, and what it holds that a program may tell from what another class made alike holds, and by which names."""
    yield cls, ()
    for name, held in vars(cls).items():
        if isinstance(held, type) or (is_plain(held) and not (isinstance(held, tuple) and held)):
            continue
        yield held, (name,)
        for inner in INNER.get(type(held), ()):
            if getattr(held, inner) is not None:
                yield getattr(held, inner), (name, inner)


class SuperValue(Value):
    """`super()`: attribute lookup that starts after a class in another's method resolution order."""

    def __init__(self, after: type, receiver: Value, start: type, bound_to_class: bool) -> None:
        self.after, self.receiver, self.start, self.bound_to_class = after, receiver, start, bound_to_class

    def python_type(self) -> type:
        return super

    def attribute(self, m: Machine, name: str) -> Value:
        if name == "__class__":
            return m.wrap.object(super)
        order = self.start.__mro__
        raw = m.attributes.found_along(order[order.index(self.after) + 1 :], name)
        if raw is MISSING:
            m.exceptions.raise_(AttributeError, f"'super' object has no attribute '{name}'")
        if self.bound_to_class and not isinstance(raw, (types.FunctionType, classmethod)):
            return m.attributes.bind_to_class(raw, self.receiver)
        if self.bound_to_class and isinstance(raw, types.FunctionType):
            return m.wrap.object(raw)
        return m.attributes.bind(raw, self.receiver, self.start)

    def emit(self, e: Emitting) -> None:
        e.call_function(super, [Constant(self.after), self.receiver])


class ClassField:
    """Among real attributes of a class, what captured code has set, or a number that changes from call to call: its value, None once it is deleted."""

    __slots__ = ("value",)

    def __init__(self, value: Value | None) -> None:
        self.value = value


class ClassFields(Value):
    """What captured code set and deleted of one class."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.source = self.place = Fixed(cls, cls.__qualname__)
        self.held: dict[str, ClassField] = {}

    def python_type(self) -> type:
        return type(self.cls)

    def write_back(self, e: Emitting) -> None:
        for name, field in self.held.items():
            if field.value is not None:
                e.method_call(self, type.__setattr__, [Constant(name), field.value])
            elif name in vars(self.cls):
                e.method_call(self, type.__delattr__, [Constant(name)])
