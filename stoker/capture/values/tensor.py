"""Tensors: a node of the graph and a fake tensor with the metadata.

Attributes that are metadata are answered from the fake at once; operations become graph nodes.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.capture.engine import set_data
from stoker.capture.machine import Emitting, Machine
from stoker.capture.polyfill import indexing
from stoker.capture.python_operators import UNARY
from stoker.capture.static import MISSING
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod, MethodValue
from stoker.capture.values.index import is_range_by_data, parts_by_data, with_numbers
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Arguments, IdentityKey, Keywords, Value
from stoker.errors import Break
from stoker.graph.calling import quietly
from stoker.guard.source import Attribute, InstanceDict, Source

METADATA = frozenset(
    [
        "dtype",
        "device",
        "layout",
        "ndim",
        "is_cuda",
        "is_cpu",
        "is_meta",
        "is_sparse",
        "is_quantized",
        "is_mkldnn",
        "is_mps",
        "is_xpu",
        "is_nested",
        "itemsize",
        "nbytes",
        "is_sparse_csr",
        "is_xla",
        "is_mtia",
        "is_maia",
        "is_ipu",
        "is_vulkan",
        "is_hpu",
        "is_ort",
        "is_vulkan",
    ]
)
DERIVED = frozenset(["T", "mT", "H", "mH", "data", "real", "imag"])
SPECIAL_UNARY = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
AUTOGRAD = frozenset(["requires_grad", "is_leaf", "output_nr", "retains_grad", "_version"])


class TensorValue(Value):
    """A tensor of the program: graph input (with a source) or intermediate."""

    has_identity = False  # the graph's outputs have names already

    def __init__(self, node: Node, fake: torch.Tensor, cls: type = torch.Tensor, source: Source | None = None) -> None:
        self.node, self.fake, self.cls, self.source = node, fake, cls, source
        self.real: torch.Tensor | None = None
        self.extra: dict[str, Value] = {}
        self.held: Value | None = None
        """What `.grad` is; None as long as captured code neither looked at it nor set it."""
        self.hooks: dict[str, list[Value]] = {}
        """Hooks that captured code put on a leaf it made."""

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"`{self.source.text}`" if self.source else f"the tensor `{self.node.name}`"

    def attribute(self, m: Machine, name: str) -> Value:
        if name in self.extra:
            return self.extra[name]
        if m.overrides.active:
            found = m.overrides.attribute(self, self.cls, name)
            if found is not None:
                return found
        if name == "shape":
            return TupleValue([m.wrap.number(size) for size in self.fake.shape], torch.Size)
        if name in METADATA:
            return m.wrap.constant(m.concrete.run(getattr, self.fake, name))
        if name in AUTOGRAD:
            return self.autograd_attribute(m, name)
        if name in DERIVED:
            return m.record.call(getattr, [self, Constant(name)], {})
        if name in ("grad", "_grad"):
            return self.gradient(m, m.here)
        if name == "__class__":
            return m.wrap.object(self.cls)
        if name == "grad_fn" and self.fake.grad_fn is None:
            return Constant(None)
        raw = m.attributes.class_lookup(self.cls, name)
        if raw is MISSING:
            return self.python_attribute(m, name)
        if isinstance(raw, types.FunctionType) and (
            raw not in m.tensor_functions or m.overrides.intercepts([self], {})
        ):
            return MethodValue(self, m.wrap.object(raw))
        if isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType)):
            return BuiltinMethod(self, name)
        if isinstance(raw, property) and raw.fget is not None and isinstance(raw.fget, types.FunctionType):
            return m.wrap.object(raw.fget).call(m, [self], {})
        if isinstance(raw, classmethod):
            return m.attributes.bind(raw, self, self.cls)
        self.unsupported(f"tensor attribute {name!r}")
        return None

    def autograd_attribute(self, m: Machine, name: str) -> Value:
        lists = ("_foreach_", "_fused_")  # operators that write to lists do not count on fakes
        if name == "_version" and (self.source or any(w in str(n.target) for n in m.record.graph.nodes for w in lists)):
            self.unsupported("the version counter")
        told = m.concrete.run(getattr, self.fake, name)
        if name == "requires_grad" or self.source is None or self.real is None:
            return m.wrap.constant(told)
        at_entry = getattr(self.real, name)
        self.guard_attribute(m, name, at_entry)
        if name == "is_leaf" and told != torch_private.is_leaf_so_far(self.real):
            return Constant(told)  # captured code gave it a history, or took it away
        if name == "retains_grad" and told:
            return Constant(True)
        if name == "output_nr" and self.fake.memory.written:  # type: ignore[attr-defined]  # a FakeTensor
            self.unsupported("the place among the results of the operator that wrote to it")
        return Constant(at_entry)

    def guard_attribute(self, m: Machine, name: str, value: Any) -> None:
        """An attribute of the object itself, as it was at entry, is what the program depends on."""
        assert self.source is not None
        m.guards.attribute_equals(self.source, name, value)

    def gradient(self, m: Machine, call: Callable[..., Any] = quietly) -> Value:
        """torch warns who looks for it at a tensor that is no leaf: the program, if `call` makes calls in its name."""
        if self.held is None:
            outside = self.source is not None and self.real is not None
            self.held = self.gradient_at_entry(m) if outside else Constant(call(getattr, (self.fake, "grad"), {}))
        return self.held

    def gradient_at_entry(self, m: Machine) -> Value:
        assert self.source is not None and self.real is not None
        return m.wrap.force(m.wrap.at(self.real.grad, Attribute(self.source, "grad")))

    def set_gradient(self, m: Machine, gradient: Value) -> None:
        """`.grad = gradient`, which torch refuses for a tensor of another shape."""
        new = m.wrap.force(gradient)
        if isinstance(new, TensorValue):
            m.concrete.run(setattr, self.fake, "grad", new.fake)
        elif not (isinstance(new, Constant) and new.value is None):
            self.unsupported("assignment of something other than a tensor to the gradient")
        if new is not self.held:
            self.held = new
            m.effects.will_mutate(self)

    def python_attribute(self, m: Machine, name: str) -> Value:
        """An attribute the user set on the tensor object."""
        found = self.held_attribute(m, name)
        if found is None:
            m.exceptions.no_attribute(self.cls, name)
        return found

    def held_attribute(self, m: Machine, name: str) -> Value | None:
        """A Python attribute that the user put on the tensor object; None if it has none of that name."""
        if self.real is None or self.source is None:
            return None
        return m.wrap.dictionary(self.real.__dict__, InstanceDict(self.source)).lookup(m, Constant(name))

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        if m.overrides.active and m.overrides.intercepts([self], {}):
            self.unsupported(f"assignment to attribute {name!r} through __torch_function__")
        if m.attributes.class_lookup(self.cls, name) is MISSING:
            self.hold_attribute(m, name, value)
        elif name == "requires_grad" and isinstance(value, Constant):
            m.calls.builtin_method(self, "requires_grad_", [value], {})
        elif name in ("grad", "_grad"):
            self.set_gradient(m, value)
        elif name == "data" and isinstance(m.wrap.force(value), TensorValue):
            m.record.call(set_data, [self, m.wrap.force(value)], {}, keep=True)
        else:
            refused = _why_unwritable(m.attributes.class_lookup(self.cls, name))
            if refused is not None:
                m.exceptions.raise_(AttributeError, refused)
            self.unsupported(f"assignment to tensor attribute {name!r}")

    def delete_attribute(self, m: Machine, name: str) -> None:
        if name in ("grad", "_grad"):
            self.set_gradient(m, Constant(None))
        else:
            super().delete_attribute(m, name)

    def hold_attribute(self, m: Machine, name: str, value: Value) -> None:
        """Put a Python attribute on the tensor object."""
        if self.real is not None and self.source is not None:
            m.wrap.dictionary(self.real.__dict__, InstanceDict(self.source)).store(m, Constant(name), value)
        else:
            self.extra[name] = value
            m.effects.will_mutate(self)

    def method(self, m: Machine, name: str, args: Arguments, kwargs: Keywords) -> Value:
        return self.attribute(m, name).call(m, args, kwargs)

    def overridden(self, m: Machine, special: str, *args: Value) -> Value | None:
        """What a special method gives if `__torch_function__` or the user's class takes it over."""
        if not m.overrides.active or not m.overrides.intercepts([self, *args], {}):
            return None
        return m.overrides.special(self, special, *args)

    def truth(self, m: Machine) -> bool:
        found = self.overridden(m, "__bool__")
        if found is not None:
            return found.truth(m)
        known = self.fake.memory.bounds  # type: ignore[attr-defined]  # a FakeTensor
        if known is not None and self.fake.dtype is torch.bool and self.fake.numel() == 1:
            return bool(known[0])
        if (content := self.fake.memory.constant) is not None:  # type: ignore[attr-defined]  # a FakeTensor
            return bool(content)
        raise Break(
            "a branch on a tensor",
            f"the truth value of {self.describe()} depends on data",
            "use torch.where, or move the branch out of the compiled function",
        )

    def length(self, m: Machine) -> Value:
        found = self.overridden(m, "__len__")
        if found is not None:
            return found
        if self.fake.dim() == 0:
            m.exceptions.raise_(TypeError, "len() of a 0-d tensor")
        return m.wrap.number(self.fake.shape[0])

    def item(self, m: Machine, key: Value) -> Value:
        found = self.overridden(m, "__getitem__", key)
        if found is not None:
            return found
        key = with_numbers(m, key)
        parts = parts_by_data(m, key, self.fake)
        if parts is not None:
            return m.wrap.object(indexing.getitem).call(m, [self, parts], {})
        return m.record.call(operator.getitem, [self, key], {})

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        if self.overridden(m, "__setitem__", key, value) is not None:
            return
        key = with_numbers(m, key)
        parts = parts_by_data(m, key, self.fake)
        if parts is not None:
            m.wrap.object(indexing.setitem).call(m, [self, parts, value], {})
        elif is_range_by_data(m, key):
            m.wrap.object(indexing.set_range).call(m, [self, key, value], {})
        else:
            m.record.call(operator.setitem, [self, key, value], {}, keep=True)

    def iterator(self, m: Machine) -> Value:
        found = self.overridden(m, "__iter__")
        if found is not None:
            return found
        if self.fake.dim() == 0:
            m.exceptions.raise_(TypeError, "iteration over a 0-d tensor")
        return m.record.method(self, "unbind", [Constant(0)], {}).iterator(m)

    def contains(self, m: Machine, item: Value) -> Value:
        found = self.overridden(m, "__contains__", item)
        if found is not None:
            return found
        if not isinstance(item, TensorValue) and not issubclass(item.python_type(), (int, float, complex)):
            self.unsupported("the `in` operator")
        equal = m.record.method(m.record.compare("==", item, self), "any", [], {})
        return m.calls.builtin_method(equal, "item", [], {})

    def unary(self, m: Machine, operator: str) -> Value:
        found = self.overridden(m, SPECIAL_UNARY[operator])
        return found if found is not None else m.record.call(UNARY[operator], [self], {})

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        """With an instance of a subclass of a number: a tensor looks into it, whatever its class says of comparing."""
        held = other.stored()
        is_number = held is not other and isinstance(held, Constant) and isinstance(held.value, (int, float, complex))
        return m.record.compare(operator, self, held) if is_number else None

    def hash_key(self, m: Machine) -> Any:
        return IdentityKey(self)

    def write_back(self, e: Emitting) -> None:
        assert self.held is not None
        e.store_attribute(self, "grad", self.held)

    def emit(self, e: Emitting) -> None:
        if any(self.hooks.values()) and self.fake.is_leaf:
            self.unsupported("a hook", "call backward() before the tensor leaves the compiled function")
        e.load_output(self.node)
        held = self.extra if self.held is None or isinstance(self.held, Constant) else {**self.extra, "grad": self.held}
        if held:
            e.name_top(self)
            for name, attribute in held.items():
                e.store_attribute(self, name, attribute)


def _why_unwritable(raw: Any) -> str | None:
    """What torch says when a field of a tensor that nobody may set is set; None if it may be."""
    if not isinstance(raw, types.GetSetDescriptorType):
        return None
    try:
        raw.__set__(torch.empty(0), None)
    except AttributeError as error:
        return str(error)
    except (TypeError, RuntimeError):  # it takes something else
        pass
    return None
