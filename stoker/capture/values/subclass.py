"""Tensors of the user's own subclasses.

The graph works on plain tensors: an input is taken out of its class before the graph, a result is put into its class
behind it. In between the class is a fact of the evaluator, and `__torch_function__` is ordinary Python (`override.py`).
"""

from __future__ import annotations

import types
from typing import Any

import torch

from stoker import torch_private
from stoker.capture.machine import Emitting, Machine
from stoker.capture.static import MISSING, static_lookup
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.guard.guard import Holds


def take_out(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory and history as a plain tensor, whatever the grad mode."""
    with torch.enable_grad():
        return tensor.as_subclass(torch.Tensor)


def put_into(tensor: torch.Tensor, cls: type) -> torch.Tensor:
    with torch.enable_grad():
        return tensor.as_subclass(cls)


def plainly(tensor: torch.Tensor, name: str) -> Any:
    with torch_private.DisableTorchFunctionSubclass():
        return getattr(tensor, name)


class SubclassValue(TensorValue):
    """A tensor whose class the user wrote."""

    has_identity = True

    def attribute(self, m: Machine, name: str) -> Value:
        raw = m.attributes.class_lookup(self.cls, name)
        if isinstance(m.attributes.class_lookup(self.cls, "__getattribute__"), types.FunctionType):
            self.unsupported("a user-written __getattribute__")
        if name in ("__dict__", "__weakref__"):
            self.unsupported(f"attribute {name!r}")
        if raw is not MISSING and raw is static_lookup(torch.Tensor, name):
            return super().attribute(m, name)
        if raw is not MISSING and m.attributes.is_data_descriptor(raw):
            return m.attributes.bind(raw, self, self.cls)
        own = self.own_attribute(m, name)
        if own is not None:
            return own
        if raw is not MISSING:
            return m.attributes.bind(raw, self, self.cls)
        fallback = m.attributes.class_lookup(self.cls, "__getattr__")
        if fallback is not MISSING:
            return m.attributes.bind(fallback, self, self.cls).call(m, [Constant(name)], {})
        m.exceptions.no_attribute(self.cls, name)
        return None

    def guard_attribute(self, m: Machine, name: str, value: Any) -> None:
        assert self.source is not None
        m.guards.add(self.source, Holds(lambda now: plainly(now, name) == value, f"{name} is {value}"))

    def gradient(self, m: Machine, call: Any = None) -> Value:
        if self.source is not None and self.real is not None:
            if self.real.grad is not None:
                self.unsupported("the gradient")
            m.guards.add(self.source, Holds(lambda now: plainly(now, "grad") is None, "has no gradient"))
        return Constant(None)

    def own_attribute(self, m: Machine, name: str) -> Value | None:
        return self.extra.get(name) or self.held_attribute(m, name)

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        if isinstance(m.attributes.class_lookup(self.cls, "__setattr__"), types.FunctionType):
            self.unsupported("a user-written __setattr__")
        raw = m.attributes.class_lookup(self.cls, name)
        if isinstance(raw, property) and raw.fset is not None:
            m.wrap.object(raw.fset).call(m, [self, value], {})
        elif raw is not MISSING and m.attributes.is_data_descriptor(raw):
            self.unsupported(f"assignment to tensor attribute {name!r}")
        else:
            self.hold_attribute(m, name, value)

    def emit(self, e: Emitting) -> None:
        e.call_function(put_into, [Made(self), Constant(self.cls)])
        if self.extra:
            e.name_top(self)
            for name, attribute in self.extra.items():
                e.store_attribute(self, name, attribute)


class Made(Value):
    """The plain tensor that the graph made for a tensor of a subclass: exists only in replacement code."""

    has_identity = False

    def __init__(self, value: TensorValue) -> None:
        self.value = value

    def python_type(self) -> type:
        return torch.Tensor

    def emit(self, e: Emitting) -> None:
        e.load_output(self.value.node)


def into_class(m: Machine, value: TensorValue, cls: type, *, fresh: bool) -> TensorValue:
    """`value.as_subclass(cls)`: the value itself if nothing else holds it, an alias with a node of its own if not."""
    if not fresh:
        made = m.record.method(value, "view_as", [value], {})
        assert isinstance(made, TensorValue)
        value = made
    if cls is torch.Tensor:
        return value
    m.overrides.note_class(cls)
    result = SubclassValue(value.node, value.fake, cls)
    m.record.hold(value.fake, result)
    return result


def is_captured_class(cls: Any) -> bool:
    """A subclass of Tensor in Python whose only magic is `__torch_function__`."""
    plain = cls.__torch_dispatch__ is torch_private.disabled_torch_dispatch
    return plain and not issubclass(cls, torch_private.UninitializedTensorMixin)


def convert(m: Machine, value: Value, cls: type, fresh: Any) -> Value:
    """What `Tensor.__torch_function__` does to a result: tensors in it become of the class."""
    if cls is torch.Tensor:
        return value
    if isinstance(value, TensorValue):
        return value if issubclass(value.cls, cls) else into_class(m, value, cls, fresh=id(value.fake) in fresh)
    if isinstance(value, TupleValue):
        return TupleValue([convert(m, part, cls, fresh) for part in value.elements(m)], value.cls)
    if isinstance(value, ListValue):
        return ListValue([convert(m, part, cls, fresh) for part in value.elements(m)])
    return value
