"""Attribute lookup as `object.__getattribute__` does it: class, instance dictionary, descriptors, `__getattr__`.

Class attributes are looked up in the real class, and guarded by class version: a later change of the class is seen.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import torch

from stoker.bytecode.versions import CLASS_METHODS_CHAIN
from stoker.capture.handlers import FIELD_READERS, FIELD_WRITERS
from stoker.capture.machine import Machine
from stoker.capture.static import CLASS_OF_OBJECT, HEAP_TYPE, IMMUTABLE_TYPE, MISSING, derives, static_lookup
from stoker.capture.values.classes import ClassField, ClassFields
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod, FunctionValue, MethodValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue, ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.proxy import mapping_behind, namespace
from stoker.capture.values.sequence import SequenceValue
from stoker.capture.values.value import Value
from stoker.errors import Break, Raised
from stoker.guard.source import Attribute, Fixed

FUNCTION_FIELDS = frozenset({"__defaults__", "__kwdefaults__"})
"""What a call of a function reads, besides its arguments."""
EXCEPTION_FIELDS = frozenset({"__cause__", "__context__", "__traceback__", "__suppress_context__", "args"})
READ_ONLY = frozenset(
    {
        *(vars(BaseExceptionGroup)[name] for name in ("message", "exceptions")),
        vars(complex)["real"],
        vars(complex)["imag"],
    }
)
"""Members of C's classes that Python code may derive from, which nobody may set."""
BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
TUPLE_GETTER = type(inspect.getattr_static(__import__("collections").namedtuple("_P", "x"), "x"))


class Attributes:
    """Attributes of objects, by the descriptor protocol. `class_attributes` holds what was looked up on classes, `varying` numbers and
    text there that have changed before, `assigned` what captured code has set."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.class_attributes: dict[type, dict[str, Any]] = {}
        self.varying: dict[tuple[type, str], ClassField] = {}
        self.assigned: dict[type, ClassFields] = {}
        self.viewed: list[Any] = []  # namespaces that captured code looks into: they show what is set later

    def class_lookup(self, cls: type, name: str) -> Any:
        """The raw attribute found along the method resolution order, MISSING if none; remembered for the guards."""
        if not any(name in fields.held for fields in self.assigned.values()):
            return self.at_entry(cls, name)
        place = Fixed(cls, cls.__qualname__)
        self.m.guards.ask(
            place, cls, lambda now: [base for base in now.__mro__ if name in vars(base)], f"has {name} there"
        )
        return self.found_along(cls.__mro__, name)

    def at_entry(self, cls: type, name: str) -> Any:
        """What the class had when captured code began."""
        table = self.class_attributes.setdefault(cls, {})
        if name in table:
            return table[name]
        if (cls, name) in self.varying:
            return self.varying[cls, name]
        raw = static_lookup(cls, name)
        if type(raw) in (int, float, str) and self.varies(cls, name, raw):
            value = self.m.wrap.force(self.m.wrap.at(raw, Attribute(Fixed(cls, cls.__qualname__), name)))
            return self.varying.setdefault((cls, name), ClassField(value))
        return table.setdefault(name, raw)

    def varies(self, cls: type, name: str, raw: Any) -> bool:
        """Has a number, or text, been another before, and is it found by plain `getattr`?"""
        if cls in self.m.made_classes or static_lookup(type(cls), name) is not MISSING:
            return False
        sizes = self.m.sizes
        asked: Any = {int: sizes.int_is_dynamic, float: sizes.float_varies, str: sizes.text_varies}[type(raw)]
        return asked(Attribute(Fixed(cls, cls.__qualname__), name), raw)

    def found_along(self, order: tuple[type, ...], name: str) -> Any:
        """What classes have by now, the first that has it."""
        for base in order:
            field = self.assigned[base].held.get(name) if base in self.assigned else None
            if field is not None and field.value is not None:
                return field
            if field is None and name in base.__dict__:
                return self.at_entry(base, name)
        return MISSING

    def view(self, mapping: Any) -> None:
        """Captured code is about to look at a whole mapping, which may be the namespace of a class."""
        for cls in self.assigned:
            if mapping_behind(namespace(cls)) is mapping:
                words = f"captured code has changed class `{cls.__qualname__}`"
                raise Break("the namespace of a class", words, "ask for attributes by name")
        self.viewed.append(mapping)

    def set_on_class(self, cls: type, name: str, new: Value | None) -> None:
        """`cls.name = new`, or without a value its deletion."""
        what = f"{'assignment to' if new is not None else 'deletion of'} class attribute {name!r}"
        self.refuse_on_class(cls, name, new, what)
        fields = self.assigned.setdefault(cls, ClassFields(cls))
        self.m.guards.ask(fields.place, cls, lambda now: name in vars(now), f"has {name} of its own as before")
        if new is None and self.found_along((cls,), name) is MISSING:
            self.m.exceptions.raise_(AttributeError, f"type object '{cls.__name__}' has no attribute '{name}'")
        self.m.effects.will_mutate(fields)
        fields.held[name] = ClassField(new)

    def refuse_on_class(self, cls: type, name: str, new: Value | None, what: str) -> None:
        """Special names are read by C code; descriptors would be asked when they are read."""
        kind = new.python_type() if new is not None else object
        reasons = {
            "it is written in C": cls.__flags__ & IMMUTABLE_TYPE or not cls.__flags__ & HEAP_TYPE,
            "C code or its metaclass reads it": name.startswith("__") or static_lookup(type(cls), name) is not MISSING,
            "the class is made by captured code": cls in self.m.made_classes,
            "a view of its namespace shows it": any(mapping_behind(namespace(cls)) is seen for seen in self.viewed),
            "what is set answers when it is read": hasattr(kind, "__get__") and not isinstance(new, FunctionValue),
        }
        for reason in [reason for reason, holds in reasons.items() if holds]:
            words = f"{what} of class `{cls.__qualname__}` is not captured: {reason}"
            raise Break(what, words, "keep the state in an instance or a dict")

    def is_data_descriptor(self, raw: Any) -> bool:
        """Does it come before what an instance holds? The class of a descriptor may change, too."""
        return any(self.class_lookup(type(raw), name) is not MISSING for name in ("__set__", "__delete__"))

    def special_method(self, value: Value, name: str) -> Value | None:
        """A special method: found on the class only, never on the instance."""
        cls = value.python_type()
        raw = self.class_lookup(cls, name)
        if raw is MISSING or raw is None:
            return None
        return self.bind(raw, value, cls)

    def read(self, value: Value, name: str) -> Value:
        """`value.name`, as instructions and `getattr` read it."""
        try:
            return value.attribute(self.m, name)
        except Raised as raised:
            error = raised.value
            if isinstance(error, ExceptionValue) and issubclass(error.cls, AttributeError):
                error.was_looked_for(name, value)
            raise

    def instance(self, value: Value, cls: type, name: str) -> Value:
        """`value.name` for an object of class `cls`."""
        getter = self.class_lookup(cls, "__getattribute__")
        if isinstance(getter, types.FunctionType):
            try:
                return self.bind(getter, value, cls).call(self.m, [Constant(name)], {})
            except Raised as raised:
                return self.missing(value, cls, name, raised)
        return self.generic(value, cls, name)

    def generic(self, value: Value, cls: type, name: str, fallback: bool = True) -> Value:
        if name == "__class__" and self.class_lookup(cls, name) is CLASS_OF_OBJECT:
            return self.m.wrap.object(cls)
        if name == "__dict__" and isinstance(value, ObjectValue):
            attributes = value.attributes(self.m)
            return attributes if attributes is not None else value.unsupported("__dict__")
        raw = self.class_lookup(cls, name)
        comes_first = raw is not MISSING and self.is_data_descriptor(raw) and not isinstance(value, ExceptionValue)
        if isinstance(value, ObjectValue) and not comes_first:
            own = value.own_attribute(self.m, name)
            if own is not None:
                return own
        if raw is not MISSING:
            try:
                return self.bind(raw, value, cls)
            except Raised as raised:
                return self.missing(value, cls, name, raised) if fallback else _again(raised)
        if not fallback:
            self.m.exceptions.no_attribute(cls, name)
        return self.missing(value, cls, name, None)

    def missing(self, value: Value, cls: type, name: str, raised: Raised | None) -> Value:
        """Nothing found, or a descriptor raised: AttributeError goes to `__getattr__` if the class has one."""
        if raised is not None and not issubclass(raised.value.python_type(), AttributeError):
            raise raised
        fallback = self.class_lookup(cls, "__getattr__")
        if fallback is torch.nn.Module.__getattr__:
            return self.module(value, cls, name)
        if fallback is not MISSING:
            return self.bind(fallback, value, cls).call(self.m, [Constant(name)], {})
        if raised is not None:
            raise raised
        self.m.exceptions.no_attribute(cls, name)
        return None

    def module(self, value: Value, cls: type, name: str) -> Value:
        """nn.Module's `__getattr__`: parameters, then buffers, then submodules; without interpreting its Python."""
        assert isinstance(value, ObjectValue)
        for table in ("_parameters", "_buffers", "_modules"):
            found = value.own_attribute(self.m, table)
            if found is not None:
                members = found.stored()
                assert isinstance(members, DictValue)
                member = members.lookup(self.m, Constant(name))
                if member is not None:
                    return member
        return self.bind(torch.nn.Module.__getattr__, value, cls).call(self.m, [Constant(name)], {})

    def bind(self, raw: Any, value: Value, cls: type) -> Value:
        """What a class attribute gives when read through an instance: the descriptor protocol."""
        if (getter := self.overridden(raw, "__get__")) is not None:
            return getter.call(self.m, [self.m.wrap.object(raw), value, self.m.wrap.object(cls)], {})
        match raw:
            case ClassField(value=FunctionValue() as function):
                return MethodValue(value, function)
            case ClassField(value=field):
                assert field is not None
                return field
            case types.FunctionType():
                return MethodValue(value, self.m.wrap.object(raw))
            case property():
                if raw.fget is None:
                    self.m.exceptions.raise_(AttributeError, "unreadable attribute")
                return self.m.wrap.object(raw.fget).call(self.m, [value], {})
            case staticmethod():
                return self.m.wrap.object(raw.__func__)
            case classmethod():
                return self.class_method(raw, self.m.wrap.object(cls), cls)
            case types.ClassMethodDescriptorType():
                return MethodValue(self.m.wrap.object(cls), self.m.wrap.object(raw))
            case types.MethodDescriptorType() | types.WrapperDescriptorType():
                return BuiltinMethod(value, raw.__name__, raw)
            case types.MemberDescriptorType() if isinstance(value, ObjectValue):
                if (
                    raw.__objclass__ is types.FunctionType and raw not in value.slots
                ):  # fields of a function are no slots of the user's
                    return value.own_attribute(self.m, raw.__name__) or value.unsupported(f"attribute {raw.__name__!r}")
                held = value.stored()
                if isinstance(held, Constant) and derives(held.python_type(), raw.__objclass__):
                    return self.m.wrap.constant(self.m.concrete.run(raw.__get__, held.value))
                found = value.slot(self.m, raw)
                if found is None:
                    self.m.exceptions.no_attribute(cls, raw.__name__)
                return found
            case functools.cached_property():
                return self.cached_property(raw, value)
            case types.GetSetDescriptorType() | types.MemberDescriptorType():
                return self.getset(raw, value)
        if type(raw) is TUPLE_GETTER:
            index = raw.__reduce__()[1][0]
            sequence = value.stored()
            assert isinstance(sequence, SequenceValue)
            return sequence.element(self.m, index)
        getter = self.class_lookup(type(raw), "__get__")
        if getter is not MISSING and not isinstance(raw, (type, types.BuiltinFunctionType)):
            return MethodValue(value, self.m.wrap.object(raw)) if callable(raw) else value.unsupported(repr(raw))
        return self.m.wrap.object(raw)

    def bind_to_class(self, raw: Any, cls_value: Any) -> Value:
        """What a class attribute gives when read through the class."""
        if (getter := self.overridden(raw, "__get__")) is not None:
            return getter.call(self.m, [self.m.wrap.object(raw), Constant(None), cls_value], {})
        match raw:
            case ClassField(value=field):
                assert field is not None
                return field
            case classmethod():
                return self.class_method(raw, cls_value, cls_value.real)
            case staticmethod():
                return self.m.wrap.object(raw.__func__)
            case types.ClassMethodDescriptorType():
                return MethodValue(cls_value, self.m.wrap.object(raw))
            case types.FunctionType() | property() | types.MethodDescriptorType() | types.WrapperDescriptorType():
                return self.m.wrap.object(raw)
        return self.m.wrap.object(raw)

    def class_method(self, raw: classmethod, cls_value: Value, cls: type) -> Value:
        """A function bound to its class. What is around another descriptor, such as a property, gives what that one gives of the class."""
        inner = raw.__func__
        if CLASS_METHODS_CHAIN and not isinstance(inner, types.FunctionType) and hasattr(type(inner), "__get__"):
            return self.bind(inner, cls_value, cls)
        return MethodValue(cls_value, self.m.wrap.object(inner))

    def overridden(self, raw: Any, name: str) -> Value | None:
        """A method of the descriptor protocol that the class of a descriptor has in Python, also one over `property`'s."""
        if raw is MISSING or not type(raw).__flags__ & HEAP_TYPE:
            return None
        found = self.class_lookup(type(raw), name)
        if not isinstance(found, types.FunctionType) or found is functools.cached_property.__get__:  # which has a lock
            return None
        return self.m.wrap.object(found)

    def cached_property(self, raw: functools.cached_property, value: Value) -> Value:
        made = self.m.wrap.object(raw.func).call(self.m, [value], {})
        attributes = value.attributes(self.m) if isinstance(value, ObjectValue) else None
        if attributes is None or raw.attrname is None:
            value.unsupported("a cached property")
        attributes.store(self.m, Constant(raw.attrname), made)
        return made

    def getset(self, raw: Any, value: Value) -> Value:
        """A C-level attribute: answered by kinds that know theirs, read from a fixed object otherwise."""
        if isinstance(value, ObjectValue):
            found = value.own_attribute(self.m, raw.__name__)
            if found is not None:
                return found
        if isinstance(value, ObjectValue) and isinstance(value.source, Fixed) and raw.__objclass__ is type:
            return self.m.wrap.object(self.m.concrete.run(raw.__get__, value.real))
        if raw in FIELD_READERS and value.source is not None:
            return FIELD_READERS[raw](self.m, value)
        return self.special_getset(raw, value)

    def special_getset(self, raw: Any, value: Value) -> Value:
        value.unsupported(f"attribute {raw.__name__!r} of a type written in C")

    def builtin(self, value: Value, name: str) -> Value:
        """An attribute of a value of a built-in type: its methods."""
        cls = value.python_type()
        raw = static_lookup(cls, name)
        if raw is MISSING:
            self.m.exceptions.no_attribute(cls, name)
        if name == "__class__":
            return self.m.wrap.object(cls)
        if isinstance(raw, BUILTIN_METHODS):
            return BuiltinMethod(value, name)
        if isinstance(raw, types.FunctionType):
            return MethodValue(value, self.m.wrap.object(raw))
        if name == "__doc__":
            return Constant(raw)
        value.unsupported(f"attribute {name!r}")
        return None

    def bound_builtin(self, value: Value, name: str) -> Value:
        return BuiltinMethod(value, name)

    def set_instance(self, value: Value, cls: type, name: str, new: Value) -> None:
        setter = self.class_lookup(cls, "__setattr__")
        if isinstance(setter, types.FunctionType):
            self.bind(setter, value, cls).call(self.m, [Constant(name), new], {})
            return
        self.set_generic(value, cls, name, new)

    def set_generic(self, value: Value, cls: type, name: str, new: Value) -> None:
        if name == "__class__" or (name == "__code__" and cls is types.FunctionType):
            value.unsupported(f"assignment to {name}")
        if isinstance(value, FunctionValue) and name in FUNCTION_FIELDS:
            value.set_field(self.m, name, new)
            return
        raw = self.class_lookup(cls, name)
        if name == "__dict__" and isinstance(raw, types.GetSetDescriptorType):
            self.set_dictionary(value, cls, new)
            return
        if (setter := self.overridden(raw, "__set__")) is not None:
            setter.call(self.m, [self.m.wrap.object(raw), value, new], {})
            return
        if isinstance(value, ExceptionValue) and name in EXCEPTION_FIELDS:
            self.m.exceptions.set_field(value, name, new)
            return
        self.refuse_read_only(raw)
        if isinstance(raw, types.GetSetDescriptorType) and raw in FIELD_WRITERS:
            FIELD_WRITERS[raw](self.m, value, new)
            return
        match raw:
            case property():
                if raw.fset is None:
                    self.m.exceptions.raise_(
                        AttributeError, f"property '{name}' of '{cls.__name__}' object has no setter"
                    )
                self.m.wrap.object(raw.fset).call(self.m, [value, new], {})
                return
            case types.MemberDescriptorType() if isinstance(value, ObjectValue):
                value.set_slot(self.m, raw, new)
                return
            case types.GetSetDescriptorType() if isinstance(value, ObjectValue) and value.real is not None:
                value.unsupported(f"assignment to {name}, which C keeps outside of its dictionary,")
        attributes = value.attributes(self.m) if isinstance(value, ObjectValue) else None
        if attributes is None:
            self.m.exceptions.no_attribute(cls, name)
        attributes.store(self.m, Constant(name), new)

    def set_dictionary(self, value: Value, cls: type, new: Value) -> None:
        """`instance.__dict__ = new`: the very dictionary, which others may hold, too."""
        new = self.m.wrap.force(new)
        if not issubclass(new.python_type(), dict):
            found = new.python_type().__name__
            self.m.exceptions.raise_(TypeError, f"__dict__ must be set to a dictionary, not a '{found}'")
        if type(value) is not InstanceValue or type(new) is not DictValue or new.cls is not dict:
            value.unsupported("assignment to __dict__")
        value.set_dictionary(self.m, new)

    def refuse_read_only(self, raw: Any) -> None:
        if isinstance(raw, types.MemberDescriptorType) and raw in READ_ONLY:
            self.m.exceptions.raise_(AttributeError, "readonly attribute")

    def delete_instance(self, value: Value, cls: type, name: str) -> None:
        deleter = self.class_lookup(cls, "__delattr__")
        if isinstance(deleter, types.FunctionType):
            self.bind(deleter, value, cls).call(self.m, [Constant(name)], {})
            return
        self.delete_generic(value, cls, name)

    def delete_generic(self, value: Value, cls: type, name: str) -> None:
        raw = self.class_lookup(cls, name)
        if (deleter := self.overridden(raw, "__delete__")) is not None:
            deleter.call(self.m, [self.m.wrap.object(raw), value], {})
            return
        if isinstance(value, ExceptionValue) and name in EXCEPTION_FIELDS:
            value.unsupported(f"deletion of attribute {name!r}")
        self.refuse_read_only(raw)
        if isinstance(raw, property) and raw.fdel is not None:
            self.m.wrap.object(raw.fdel).call(self.m, [value], {})
            return
        if isinstance(raw, types.MemberDescriptorType) and isinstance(value, ObjectValue):
            value.set_slot(self.m, raw, None)
            return
        attributes = value.attributes(self.m) if isinstance(value, ObjectValue) else None
        if attributes is None or attributes.lookup(self.m, Constant(name)) is None:
            self.m.exceptions.no_attribute(cls, name)
        attributes.remove(self.m, Constant(name))


def _again(raised: Raised) -> Value:
    raise raised
