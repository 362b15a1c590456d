"""Python modules, and nn.Module instances.

An nn.Module is an ordinary instance; calling one without hooks goes straight to `forward`, with guards that the hook
tables stay empty.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from stoker import torch_private
from stoker.capture.machine import Emitting, Machine
from stoker.capture.static import MISSING
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.instance import InstanceValue, ObjectValue
from stoker.capture.values.value import Arguments, Keywords, Value
from stoker.errors import BeginAnew, Break
from stoker.guard.source import Fixed, Source

HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOK_TABLES = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


class PythonModule(ObjectValue):
    """A module object: its attributes are the entries of its dictionary."""

    def __init__(self, real: types.ModuleType, source: Source) -> None:
        super().__init__(types.ModuleType, real, source)

    def describe(self) -> str:
        return f"module `{self.real.__name__}`"

    def attributes(self, m: Machine):
        return m.wrap.globals(vars(self.real))

    def attribute(self, m: Machine, name: str) -> Value:
        descriptor = m.attributes.class_lookup(type(self.real), name)
        if descriptor is not MISSING and m.attributes.is_data_descriptor(descriptor):
            return self.answered(m, name)
        found = self.attributes(m).lookup(m, Constant(name))
        if found is None and descriptor is MISSING:
            found = self.through_getattr(m, name)
        return found if found is not None else self.answered(m, name)

    def through_getattr(self, m: Machine, name: str) -> Value | None:
        """A module's own `__getattr__` (PEP 562), entered unless it is a library's, which may import."""
        own = self.attributes(m).lookup(m, Constant("__getattr__"))
        if own is None or m.policy.is_library(str(vars(self.real).get("__file__"))):
            return None
        return own.call(m, [Constant(name)], {})

    def answered(self, m: Machine, name: str) -> Value:
        """What only the module itself can tell: a property of its class, or its `__getattr__`. One that keeps what it was asked for, as
        `torch.ops` and lazy packages do, has it for good: it is looked at anew."""
        place, kept = Fixed(self.real, self.real.__name__), name in vars(self.real)
        real = m.guards.ask(place, self.real, lambda now: getattr(now, name), f"has the same {name}")
        if not kept and name in vars(self.real):
            raise BeginAnew
        return m.wrap.constant(real) if is_plain(real) else m.wrap.object(real)

    def set_attribute(self, m: Machine, name: str, value: Value) -> None:
        if m.effects.deferred:
            raise Break(
                f"assignment to `{self.real.__name__}.{name}`", "output that was printed before it is still waiting"
            )
        self.attributes(m).store(m, Constant(name), value)

    def hash_key(self, m: Machine) -> Any:
        return self.real

    def constant(self) -> Any:
        return self.real

    def emit(self, e: Emitting) -> None:
        e.const(self.real)


class ModuleValue(InstanceValue):
    """An nn.Module."""

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        if not torch_private.is_modules_own(m.attributes.class_lookup(self.cls, "__call__")):
            return super().call(m, args, kwargs)
        around = m.attributes.class_lookup(self.cls, "_call_impl")
        if torch_private.is_modules_own(around) and self.has_no_hooks(m):
            return self.attribute(m, "forward").call(m, args, kwargs)
        return self.attribute(m, "_call_impl").call(m, args, kwargs)

    def has_no_hooks(self, m: Machine) -> bool:
        """No hook would run around `forward`; each table looked at is guarded."""
        for name in HOOK_TABLES:
            table = self.own_attribute(m, name)
            if table is None or table.truth(m):
                return False
        namespace = m.wrap.globals(vars(torch.nn.modules.module))
        tables = (namespace.lookup(m, Constant(name)) for name in GLOBAL_HOOK_TABLES)
        return not any(table is not None and table.truth(m) for table in tables)
