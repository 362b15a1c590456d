"""copy.copy and copy.deepcopy over Values: new objects of the same classes, shared as they were shared."""

from __future__ import annotations

import copy
import copyreg
import types

import torch

from stoker import torch_private
from stoker.capture.handlers import handles
from stoker.capture.leaf import fresh_leaf
from stoker.capture.machine import Machine
from stoker.capture.static import HEAP_TYPE
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.deque import DequeValue
from stoker.capture.values.function import BuiltinValue, FunctionValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue, ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.proxy import ProxyValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.sets import SetValue, set_of
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value

Memo = dict[int, tuple[Value, Value]]


@handles(copy.copy)
def copy_(m: Machine, value: Value) -> Value:
    return _copied(m, value, "__copy__", lambda part: part, {})


@handles(copy.deepcopy)
def deepcopy_(m: Machine, value: Value, memo: Value | None = None) -> Value:
    known: Memo = {}

    def deep(part: Value) -> Value:
        found = known.get(id(part))
        return found[0] if found is not None else _copied(m, part, "__deepcopy__", deep, known)

    return deep(value)


def _copied(m: Machine, value: Value, special: str, part, known: Memo) -> Value:
    """A copy whose parts are made by `part`; registered before its parts, so that cycles close."""

    def register(made: Value) -> None:
        known[id(value)] = (made, value)

    made: Value
    match value:
        case TensorValue():
            made = _copied_tensor(m, value, special)
            register(made)
        case DequeValue():
            made = DequeValue([], value.maxlen)
            register(made)
            made._elements.extend(part(e) for e in value.elements(m))
        case ListValue():
            made = ListValue([])
            register(made)
            made._elements.extend(part(e) for e in value.elements(m))
        case TupleValue():
            parts = [part(e) for e in value.elements(m)]
            unchanged = all(new is old for new, old in zip(parts, value.elements(m)))
            made = value if unchanged else TupleValue(parts, value.cls)
        case ProxyValue():
            value.unsupported(special)
        case DictValue():
            made = DictValue(cls=value.cls, default_factory=value.default_factory)
            register(made)
            for key, entry in value.pairs(m):
                made.store(m, part(key), part(entry))
        case SetValue():
            made = (
                value.copied()
                if special == "__copy__"
                else set_of(m, ListValue([part(e) for e in value.elements(m)]), value.cls)
            )
            made = value if value.cls is frozenset and special == "__copy__" else made
        case ExceptionValue():
            value.unsupported(f"{special} of an exception")
        case InstanceValue():
            return _copied_instance(m, value, special, part, register)
        case Constant() | SymbolicValue() | FunctionValue() | ClassValue() | BuiltinValue():
            return value
        case _:
            value.unsupported(special)
    return made


def _cloned(m: Machine, value: TensorValue) -> TensorValue:
    made = m.record.method(m.record.method(value, "detach", [], {}), "clone", [], {})
    assert isinstance(made, TensorValue)
    return made


def _copied_tensor(m: Machine, value: TensorValue, special: str) -> Value:
    """A tensor object of its own, on memory of its own if deep: for tensors with neither history nor attributes."""
    real = value.real
    deep = special == "__deepcopy__"
    odd = type(value) is not TensorValue or value.cls is not torch.Tensor or bool(value.extra)
    is_leaf = type(value) is TensorValue and value.fake.requires_grad and value.fake.is_leaf and not value.extra
    if deep and is_leaf and not (real is not None and (real.__dict__ or torch_private.is_view(real))):
        made = fresh_leaf(m, _cloned(m, value), value.cls)
        if value.cls is torch.Tensor and isinstance(
            held := value.gradient(m), TensorValue
        ):  # parameters leave it behind
            made.set_gradient(m, _cloned(m, held))
        return made
    if (
        odd
        or value.fake.requires_grad
        or not value.fake.is_leaf
        or (real is not None and (real.__dict__ or (deep and torch_private.is_view(real))))
    ):
        value.unsupported("copy.deepcopy()" if deep else "copy.copy()")
    return _cloned(m, value) if deep else m.record.method(value, "detach", [], {})


def _copied_instance(m: Machine, value: InstanceValue, special: str, part, register) -> Value:
    hook = m.attributes.special_method(value, special)
    if hook is not None:
        return hook.call(m, [DictValue()] if special == "__deepcopy__" else [], {})
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs_ex__", "__getnewargs__"):
        if isinstance(m.attributes.class_lookup(value.cls, name), types.FunctionType):
            value.unsupported(f"{special} through a user-written {name}")
    in_c = [base for base in value.cls.__mro__ if not base.__flags__ & HEAP_TYPE and base is not object]
    if value.cls in copyreg.dispatch_table or (in_c and value.storage is None):
        value.unsupported(f"{special} of what C code holds, or by a function of copyreg's")
    made = InstanceValue(value.cls, storage=part(value.storage) if value.storage is not None else None)
    if isinstance(value, ObjectValue) and type(value) is not InstanceValue:
        made = type(value)(value.cls)
    register(made)
    attributes, target = value.attributes(m), made.attributes(m)
    if attributes is not None and target is not None:
        for key, entry in attributes.pairs(m):
            target.store(m, key, part(entry))
    for descriptor in value.slot_descriptors():
        slot = value.slot(m, descriptor)
        if slot is not None:
            made.slots[descriptor] = part(slot)
    return made
