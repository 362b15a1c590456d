"""Is it of that class? isinstance and issubclass, through metaclasses, abstract classes' registries and protocols.

What answers is the class's business, and may change: inheritance is fixed, registries and protocols are guarded.
"""

from __future__ import annotations

import _abc
import abc
import types
import typing
from collections.abc import Callable
from typing import Any

import torch

from stoker.capture.handlers import handles, on_object
from stoker.capture.machine import Machine
from stoker.capture.static import CLASS_OF_OBJECT, derives
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant, Varying
from stoker.capture.values.instance import InstanceValue, ObjectValue
from stoker.capture.values.opaque import OpaqueValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Raised
from stoker.guard.source import Fixed, Source

NONE = Constant(None)


def classes_in(m: Machine, pattern: Value) -> Any:
    """The class or (nested) tuple of classes of isinstance and issubclass."""
    if isinstance(pattern, TupleValue):
        return tuple(classes_in(m, part) for part in pattern.items_list(m))
    if isinstance(pattern, ObjectValue) and not isinstance(pattern, ClassValue) and pattern.real is not None:
        return pattern.real
    return m.concrete.constant(pattern, "a class pattern")


@handles(isinstance)
def isinstance_(m: Machine, value: Value, pattern: Value) -> Value:
    classes = classes_in(m, pattern)
    if isinstance(value, TensorValue):
        return Constant(_tensor_isinstance(m, value, classes))
    return Constant(_any_class(m, classes, lambda cls: _is_instance(m, value, cls)))


def _any_class(m: Machine, classes: Any, test: Callable[[Any], bool]) -> bool:
    if isinstance(classes, tuple):
        return any(_any_class(m, cls, test) for cls in classes)
    return test(classes)


def _is_instance(m: Machine, value: Value, cls: Any) -> bool:
    """One class: by its metaclass's `__instancecheck__`, by the registries of abstract classes, by inheritance."""
    checks = m.attributes.class_lookup(type(cls), "__instancecheck__")
    if isinstance(cls, type) and isinstance(checks, types.FunctionType) and cls not in value.python_type().__mro__:
        if not m.policy.is_library(checks.__code__.co_filename):
            return m.attributes.bind(checks, m.wrap.object(cls), type(cls)).call(m, [value], {}).truth(m)
        if getattr(cls, "_is_protocol", False):
            return _satisfies(m, value, cls)
        if isinstance(cls, abc.ABCMeta):
            return _is_registered(m, value, cls)
    if isinstance(value, OpaqueValue) and value.source is not None and type(cls) is not type:
        return _is_told(m, value, value.source, cls)
    if isinstance(cls, type) and _names_its_class(m, value):
        return derives(value.python_type(), cls) or _claims(m, value, cls)
    if isinstance(value, ObjectValue) and value.real is not None:
        return m.concrete.run(isinstance, value.real, cls)
    if isinstance(value, Constant) and not isinstance(value, Varying):
        return m.concrete.run(isinstance, value.value, cls)
    return m.concrete.run(issubclass, value.python_type(), cls)


def _is_told(m: Machine, value: OpaqueValue, source: Source, cls: Any) -> bool:
    """What a class tells of an object that captured code does not look into: a parameter of a tensor class is one by a mark it has."""
    words = f"{'is' if isinstance(value.real, cls) else 'is not'} an instance of {cls!r}"
    return m.guards.ask(source, value.real, lambda now: isinstance(now, cls), words)


def _is_registered(m: Machine, value: Value, cls: type) -> bool:
    """What an abstract class answers: about the class that an object says it is of, and about the one that it is of."""
    said = _said_class(m, value) if _names_its_class(m, value) else value.python_type()
    if not isinstance(said, type):
        m.exceptions.raise_(TypeError, "issubclass() arg 1 must be a class")
    return m.guards.is_subclass(said, cls) or m.guards.is_subclass(value.python_type(), cls)


def _names_its_class(m: Machine, value: Value) -> bool:
    """Has an object's class a `__class__` of its own?"""
    own = isinstance(value, InstanceValue) and m.attributes.class_lookup(value.python_type(), "__class__")
    return own is not False and own is not CLASS_OF_OBJECT


def _said_class(m: Machine, value: Value) -> Any:
    return m.concrete.constant(value.attribute(m, "__class__"), "__class__")


def _claims(m: Machine, value: Value, cls: type) -> bool:
    """Does an object say that it is of a class? isinstance believes it."""
    try:
        said = _said_class(m, value)
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return False
        raise
    return isinstance(said, type) and derives(said, cls)


def _satisfies(m: Machine, value: Value, protocol: type) -> bool:
    """A runtime-checkable Protocol looks at the object's attributes."""
    if isinstance(value, ObjectValue) and value.real is not None and value.source is not None:
        if value.has_changed(m):
            value.unsupported(f"isinstance() with the protocol {protocol.__qualname__} of an object that has changed")
        words = f"{'satisfies' if isinstance(value.real, protocol) else 'does not satisfy'} {protocol.__qualname__}"
        return m.guards.ask(value.source, value.real, lambda now: isinstance(now, protocol), words)
    if isinstance(value, InstanceValue):
        return all(_has_member(m, value, protocol, name) for name in protocol_members(protocol))
    return m.guards.is_subclass(value.python_type(), protocol)


def protocol_members(protocol: type) -> list[str]:
    """The names that a Protocol asks for. From 3.12 on, the class keeps them."""
    kept: Any = vars(protocol).get("__protocol_attrs__")
    return sorted(kept if kept is not None else typing._get_protocol_attrs(protocol))  # type: ignore[attr-defined]  # of the standard library, not in its stubs


def _has_member(m: Machine, value: Value, protocol: type, name: str) -> bool:
    if not m.operators.has_attribute(value, name):
        return False
    declared = m.attributes.class_lookup(protocol, name)
    return not callable(declared) or not m.operators.identical(value.attribute(m, name), NONE)


def _tensor_isinstance(m: Machine, value: TensorValue, classes: Any) -> bool:
    if isinstance(classes, tuple):
        return any(_tensor_isinstance(m, value, cls) for cls in classes)
    checks = m.attributes.class_lookup(type(classes), "__instancecheck__")
    if isinstance(classes, type) and isinstance(checks, types.FunctionType):
        if classes is torch.nn.Buffer or not m.policy.is_library(checks.__code__.co_filename):
            return m.attributes.bind(checks, m.wrap.object(classes), type(classes)).call(m, [value], {}).truth(m)
    if value.real is not None:
        return m.concrete.run(isinstance, value.real, classes)
    if classes is torch.nn.Parameter:
        return value.cls is torch.nn.Parameter
    if isinstance(classes, type(torch.FloatTensor)):
        return _is_of_legacy_class(value, classes)
    return m.concrete.run(issubclass, value.cls, classes)


def _is_of_legacy_class(value: TensorValue, cls: Any) -> bool:
    """`torch.DoubleTensor`, `torch.cuda.sparse.IntTensor`: a device, a layout and a dtype that have the name of a class."""
    device = cls.__module__.removeprefix("torch").removesuffix(".sparse").removeprefix(".") or "cpu"
    fake = value.fake
    return fake.device.type == device and fake.layout is cls.layout and fake.dtype is cls.dtype


@handles(issubclass)
def issubclass_(m: Machine, cls: Value, pattern: Value) -> Value:
    real = m.concrete.constant(cls, "issubclass()")
    return Constant(_any_class(m, classes_in(m, pattern), lambda family: _is_subclass(m, cls, real, family)))


def _is_subclass(m: Machine, cls: Value, real: Any, family: Any) -> bool:
    checks = m.attributes.class_lookup(type(family), "__subclasscheck__")
    if isinstance(family, type) and isinstance(real, type) and isinstance(checks, types.FunctionType):
        if not m.policy.is_library(checks.__code__.co_filename):
            return m.attributes.bind(checks, m.wrap.object(family), type(family)).call(m, [cls], {}).truth(m)
        if isinstance(family, abc.ABCMeta):
            return m.guards.is_subclass(real, family)
    return m.concrete.run(issubclass, real, family)


@on_object(type.__instancecheck__)
def type_instancecheck(m: Machine, cls: Value, value: Value) -> Value:
    real = m.concrete.constant(cls, "isinstance()")
    return Constant(derives(value.python_type(), real) or _names_its_class(m, value) and _claims(m, value, real))


@on_object(type.__subclasscheck__)
def type_subclasscheck(m: Machine, cls: Value, other: Value) -> Value:
    family, real = (m.concrete.constant(v, "issubclass()") for v in (cls, other))
    return Constant(m.concrete.run(type.__subclasscheck__, family, real))


@handles(_abc._abc_instancecheck)
def abc_instancecheck(m: Machine, cls: Value, value: Value) -> Value:
    return Constant(_is_registered(m, value, m.concrete.constant(cls, "isinstance()")))


@handles(_abc._abc_subclasscheck)
def abc_subclasscheck(m: Machine, cls: Value, other: Value) -> Value:
    real = m.concrete.constant(other, "issubclass()")
    return Constant(m.guards.is_subclass(real, m.concrete.constant(cls, "issubclass()")))


@on_object(type.__subclasses__)
def subclasses(m: Machine, cls: Value) -> Value:
    """The classes that derive from one, while there are no others."""
    real = m.concrete.constant(cls, "__subclasses__()")
    found = m.guards.ask(Fixed(real, real.__qualname__), real, type.__subclasses__, "has the same subclasses")
    return ListValue([m.wrap.object(other) for other in found])
