"""Attribute lookup as `object.__getattribute__` does it: class, instance dictionary, descriptors, `__getattr__`.

Class attributes are looked up in the real class, and guarded by class version: a later change of the class is seen.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from stoker import _C
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod, MethodValue
from stoker.capture.values.instance import ExceptionValue, ObjectValue
from stoker.capture.values.sequence import SequenceValue
from stoker.capture.values.value import Value
from stoker.errors import Raised
from stoker.guard.source import Fixed, Source

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

MISSING = _C.MISSING
BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
TUPLE_GETTER = type(inspect.getattr_static(__import__("collections").namedtuple("_P", "x"), "x"))


class Attributes:
    """Mixed into the machine."""

    MISSING = MISSING

    def class_lookup(self: Machine, cls: type, name: str) -> Any:
        """The raw attribute found along the method resolution order, MISSING if none; remembered for the guards."""
        table = self.class_attributes.setdefault(cls, {})
        if name not in table:
            table[name] = _static_lookup(cls, name)
        return table[name]

    def tensor_class_attribute(self: Machine, name: str) -> Any:
        """The raw attribute of torch.Tensor itself."""
        return _static_lookup(torch.Tensor, name)

    def is_data_descriptor(self: Machine, raw: Any) -> bool:
        return _is_data_descriptor(raw)

    def guard_class_attribute(self: Machine, cls: type, name: str) -> None:
        self.class_lookup(cls, name)

    def special_method(self: Machine, value: Value, name: str) -> Value | None:
        """A special method: found on the class only, never on the instance."""
        cls = value.python_type()
        raw = self.class_lookup(cls, name)
        if raw is MISSING or raw is None:
            return None
        return self.bind(raw, value, cls)

    def instance_attribute(self: Machine, value: Value, cls: type, name: str) -> Value:
        """`value.name` for an object of class `cls`."""
        getter = self.class_lookup(cls, "__getattribute__")
        if isinstance(getter, types.FunctionType):
            try:
                return self.call(self.bind(getter, value, cls), [Constant(name)], {})
            except Raised as raised:
                return self.missing_attribute(value, cls, name, raised)
        return self.generic_attribute(value, cls, name)

    def generic_attribute(self: Machine, value: Value, cls: type, name: str, fallback: bool = True) -> Value:
        if name == "__class__":
            return self.wrap_object(cls)
        if name == "__dict__" and isinstance(value, ObjectValue):
            attributes = value.attributes(self)
            return attributes if attributes is not None else value.unsupported("__dict__")
        raw = self.class_lookup(cls, name)
        if raw is not MISSING and _is_data_descriptor(raw) and not isinstance(value, ExceptionValue):
            try:
                return self.bind(raw, value, cls)
            except Raised as raised:
                return self.missing_attribute(value, cls, name, raised) if fallback else _again(raised)
        if isinstance(value, ObjectValue):
            own = value.own_attribute(self, name)
            if own is not None:
                return own
        if raw is not MISSING:
            return self.bind(raw, value, cls)
        if not fallback:
            self.raise_(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        return self.missing_attribute(value, cls, name, None)

    def missing_attribute(self: Machine, value: Value, cls: type, name: str, raised: Raised | None) -> Value:
        """Nothing found, or a descriptor raised: AttributeError goes to `__getattr__` if the class has one."""
        if raised is not None and not issubclass(raised.value.python_type(), AttributeError):
            raise raised
        fallback = self.class_lookup(cls, "__getattr__")
        if fallback is torch.nn.Module.__getattr__:
            return self.module_attribute(value, cls, name)
        if fallback is not MISSING:
            return self.call(self.bind(fallback, value, cls), [Constant(name)], {})
        if raised is not None:
            raise raised
        self.raise_(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        return None

    def module_attribute(self: Machine, value: Value, cls: type, name: str) -> Value:
        """nn.Module's `__getattr__`: parameters, then buffers, then submodules; without interpreting its Python."""
        assert isinstance(value, ObjectValue)
        for table in ("_parameters", "_buffers", "_modules"):
            found = value.own_attribute(self, table)
            if found is not None:
                member = self.storage_of(found).lookup(self, Constant(name))  # type: ignore[attr-defined]
                if member is not None:
                    return member
        self.raise_(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        return None

    def bind(self: Machine, raw: Any, value: Value, cls: type) -> Value:
        """What a class attribute gives when read through an instance: the descriptor protocol."""
        match raw:
            case types.FunctionType():
                return MethodValue(value, self.wrap_object(raw))
            case property():
                if raw.fget is None:
                    self.raise_(AttributeError, "unreadable attribute")
                return self.call(self.wrap_object(raw.fget), [value], {})
            case staticmethod():
                return self.wrap_object(raw.__func__)
            case classmethod():
                return MethodValue(self.wrap_object(cls), self.wrap_object(raw.__func__))
            case types.ClassMethodDescriptorType():
                return MethodValue(self.wrap_object(cls), self.wrap_object(raw))
            case types.MethodDescriptorType() | types.WrapperDescriptorType():
                return BuiltinMethod(value, raw.__name__, raw)
            case types.MemberDescriptorType() if isinstance(value, ObjectValue):
                found = value.slot(self, raw)
                if found is None:
                    self.raise_(AttributeError, raw.__name__)
                return found
            case functools.cached_property():
                return self.cached_property(raw, value)
            case types.GetSetDescriptorType() | types.MemberDescriptorType():
                return self.getset(raw, value)
        if type(raw) is TUPLE_GETTER:
            index = raw.__reduce__()[1][0]
            sequence = self.storage_of(value)
            assert isinstance(sequence, SequenceValue)
            return sequence.element(self, index)
        getter = self.class_lookup(type(raw), "__get__")
        if isinstance(getter, types.FunctionType):
            return self.call(self.wrap_object(getter), [self.wrap_object(raw), value, self.wrap_object(cls)], {})
        if getter is not MISSING and not isinstance(raw, (type, types.BuiltinFunctionType)):
            return MethodValue(value, self.wrap_object(raw)) if callable(raw) else value.unsupported(repr(raw))
        return self.wrap_object(raw)

    def bind_to_class(self: Machine, raw: Any, cls_value: Any) -> Value:
        """What a class attribute gives when read through the class."""
        match raw:
            case classmethod():
                return MethodValue(cls_value, self.wrap_object(raw.__func__))
            case staticmethod():
                return self.wrap_object(raw.__func__)
            case types.ClassMethodDescriptorType():
                return MethodValue(cls_value, self.wrap_object(raw))
            case types.FunctionType() | property() | types.MethodDescriptorType() | types.WrapperDescriptorType():
                return self.wrap_object(raw)
        getter = self.class_lookup(type(raw), "__get__")
        if isinstance(getter, types.FunctionType):
            return self.call(self.wrap_object(getter), [self.wrap_object(raw), Constant(None), cls_value], {})
        return self.wrap_object(raw)

    def cached_property(self: Machine, raw: functools.cached_property, value: Value) -> Value:
        made = self.call(self.wrap_object(raw.func), [value], {})
        attributes = value.attributes(self) if isinstance(value, ObjectValue) else None
        if attributes is None or raw.attrname is None:
            value.unsupported("a cached property")
        attributes.store(self, Constant(raw.attrname), made)
        return made

    def getset(self: Machine, raw: Any, value: Value) -> Value:
        """A C-level attribute: answered by kinds that know theirs, read from a fixed object otherwise."""
        if isinstance(value, ObjectValue):
            found = value.own_attribute(self, raw.__name__)
            if found is not None:
                return found
        if isinstance(value, ObjectValue) and isinstance(value.source, Fixed) and raw.__objclass__ is type:
            return self.wrap_object(self.run_real(raw.__get__, value.real))
        return self.special_getset(raw, value)

    def special_getset(self: Machine, raw: Any, value: Value) -> Value:
        value.unsupported(f"attribute {raw.__name__!r} of a type written in C")

    def builtin_attribute(self: Machine, value: Value, name: str) -> Value:
        """An attribute of a value of a built-in type: its methods."""
        cls = value.python_type()
        raw = _static_lookup(cls, name)
        if raw is MISSING:
            self.raise_(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        if name == "__class__":
            return self.wrap_object(cls)
        if isinstance(raw, BUILTIN_METHODS):
            return BuiltinMethod(value, name)
        if isinstance(raw, types.FunctionType):
            return MethodValue(value, self.wrap_object(raw))
        if name == "__doc__":
            return Constant(raw)
        value.unsupported(f"attribute {name!r}")
        return None

    def bound_builtin(self: Machine, value: Value, name: str) -> Value:
        return BuiltinMethod(value, name)

    def set_instance_attribute(self: Machine, value: Value, cls: type, name: str, new: Value) -> None:
        setter = self.class_lookup(cls, "__setattr__")
        if isinstance(setter, types.FunctionType):
            self.call(self.bind(setter, value, cls), [Constant(name), new], {})
            return
        self.generic_set_attribute(value, cls, name, new)

    def generic_set_attribute(self: Machine, value: Value, cls: type, name: str, new: Value) -> None:
        if name == "__class__":
            value.unsupported("assignment to __class__")
        raw = self.class_lookup(cls, name)
        match raw:
            case property():
                if raw.fset is None:
                    self.raise_(AttributeError, f"property '{name}' of '{cls.__name__}' object has no setter")
                self.call(self.wrap_object(raw.fset), [value, new], {})
                return
            case types.MemberDescriptorType() if isinstance(value, ObjectValue):
                value.set_slot(self, raw, new)
                return
        setter = self.class_lookup(type(raw), "__set__") if raw is not MISSING else MISSING
        if isinstance(setter, types.FunctionType):
            self.call(self.wrap_object(setter), [self.wrap_object(raw), value, new], {})
            return
        if isinstance(value, ExceptionValue) and name in (
            "__cause__",
            "__context__",
            "__traceback__",
            "__suppress_context__",
            "args",
        ):
            if name == "args":
                value.set_args(self, new.items_list(self))
            else:
                value.link(self, name, new)
            return
        attributes = value.attributes(self) if isinstance(value, ObjectValue) else None
        if attributes is None:
            self.raise_(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        attributes.store(self, Constant(name), new)

    def delete_instance_attribute(self: Machine, value: Value, cls: type, name: str) -> None:
        deleter = self.class_lookup(cls, "__delattr__")
        if isinstance(deleter, types.FunctionType):
            self.call(self.bind(deleter, value, cls), [Constant(name)], {})
            return
        self.generic_delete_attribute(value, cls, name)

    def generic_delete_attribute(self: Machine, value: Value, cls: type, name: str) -> None:
        raw = self.class_lookup(cls, name)
        if isinstance(raw, property) and raw.fdel is not None:
            self.call(self.wrap_object(raw.fdel), [value], {})
            return
        if isinstance(raw, types.MemberDescriptorType) and isinstance(value, ObjectValue):
            value.set_slot(self, raw, None)
            return
        attributes = value.attributes(self) if isinstance(value, ObjectValue) else None
        if attributes is None or attributes.lookup(self, Constant(name)) is None:
            self.raise_(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        attributes.remove(self, Constant(name))

    def fixed(self: Machine, obj: Any) -> Source:
        name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or type(obj).__name__
        return Fixed(obj, str(name))


def _static_lookup(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def _is_data_descriptor(raw: Any) -> bool:
    if isinstance(raw, types.FunctionType):
        return False
    kind = type(raw)
    return _static_lookup(kind, "__set__") is not MISSING or _static_lookup(kind, "__delete__") is not MISSING


def _again(raised: Raised) -> Value:
    raise raised
