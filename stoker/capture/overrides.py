"""`__torch_function__`: user classes and modes that take over calls of torch's functions.

In:  a call of a torch function, method or attribute, and its arguments as Values.
Out: what the override makes of it, evaluated like any other Python code; or None where nothing overrides the call.

Requirements (tests/differential/test_subclasses.py):
  1. Overrides see the function, the types and the arguments that eager would show them.
  2. A program without overrides pays one test of a flag.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from stoker import torch_private
from stoker.capture.machine import Machine
from stoker.capture.static import MISSING, derives, static_lookup
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import MethodValue
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.subclass import SubclassValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Arguments, Keywords, Value
from stoker.errors import Break

NAME = "__torch_function__"
OVERRIDABLE_KINDS = (
    types.BuiltinFunctionType,
    torch_private.OpOverload,
    torch_private.OpOverloadPacket,
)
SHOWN_TO_MODES = frozenset({torch_private.set_grad_enabled})
NEVER_SHOWN = frozenset({torch.from_numpy})
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


class Overrides:
    """`active` is set when the first object that may override a call is met."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.active = False
        self.modes: list[Value] = []
        self.subclasses_off = 0 if torch_private.torch_function_enabled() else 1
        self.modes_off = 1 if torch_private.torch_function_all_disabled() else 0

    def note_class(self, cls: type) -> None:
        """An object of this class was met: may it override calls?"""
        if not self.active and hasattr(cls, NAME):
            self.active = True

    def is_overloaded(self, value: Value) -> bool:
        """Does torch ask this argument's `__torch_function__`?"""
        if self.subclasses_off or not isinstance(value, (SubclassValue, InstanceValue)):
            return False
        return self.class_overrides(value.python_type())

    def class_overrides(self, cls: type) -> bool:
        raw = self.m.attributes.class_lookup(cls, NAME)
        return raw is not MISSING and raw is not torch_private.disabled_torch_function

    def active_mode(self) -> bool:
        return bool(self.modes) and not self.modes_off

    def intercepts(self, args: Arguments, kwargs: Keywords) -> bool:
        """Is a call with these arguments overridden?"""
        if not self.active:
            return False
        return self.active_mode() or any(self.is_overloaded(v) for v in _flat(self.m, args, kwargs))

    def ask(self, function: Any, args: Arguments, kwargs: Keywords) -> Value | None:
        """What the overrides make of `function(*args, **kwargs)`; None if there are none."""
        if not self.intercepts(args, kwargs):
            return None
        overloaded = self.overloaded(args, kwargs)
        kinds = TupleValue([self.m.wrap.object(v.python_type()) for v in overloaded])
        given = [self.m.wrap.object(function), kinds, TupleValue(list(args))]
        if kwargs:
            given.append(DictValue({k: (Constant(k), v) for k, v in kwargs.items()}))
        if self.active_mode():
            found = self.ask_mode(given)
            if found is not None:
                return found
        for value in overloaded:
            found = self.method(value).call(self.m, list(given), {})
            if not _is_not_implemented(found):
                return found
        name = torch.overrides.resolve_name(function)
        words = f"no implementation found for '{name}' on types that implement {NAME}: "
        self.m.exceptions.raise_(TypeError, words + str([v.python_type() for v in overloaded]))
        return None

    def ask_mode(self, given: Arguments) -> Value | None:
        """Call the innermost mode, without it on the stack."""
        mode = self.modes.pop()
        try:
            found = mode.attribute(self.m, NAME).call(self.m, list(given), {})
        finally:
            self.modes.append(mode)
        return None if _is_not_implemented(found) else found

    def overloaded(self, args: Arguments, kwargs: Keywords) -> list[Value]:
        """Arguments to ask, in torch's order: left to right, one a class, a subclass before its base."""
        found: list[Value] = []
        for value in _flat(self.m, args, kwargs):
            cls = value.python_type()
            if not self.is_overloaded(value) or any(v.python_type() is cls for v in found):
                continue
            place = next((i for i, v in enumerate(found) if issubclass(cls, v.python_type())), len(found))
            found.insert(place, value)
        return found

    def method(self, value: Value) -> Value:
        raw = self.m.attributes.class_lookup(value.python_type(), NAME)
        if isinstance(raw, types.FunctionType):
            raise Break(NAME, "it is a plain method, which torch warns about", "make it a classmethod")
        return self.m.attributes.bind(raw, value, value.python_type())

    def attribute(self, value: Value, cls: type, name: str) -> Value | None:
        """An attribute of a tensor that is a property written in C: read through the overrides."""
        if name == "__class__" or not self.intercepts([value], {}):
            return None
        raw = self.m.attributes.class_lookup(cls, name)
        if not isinstance(raw, (types.GetSetDescriptorType, property)) or name in ("__dict__", "__weakref__"):
            return None
        if raw is not static_lookup(torch.Tensor, name):
            return None
        if isinstance(raw, property):
            return self.m.wrap.object(raw.fget).call(self.m, [value], {})
        function = raw.__get__
        if function in torch.overrides.get_ignored_functions():
            return None
        return self.ask(function, [value], {})

    def call(self, real: Any, args: Arguments, kwargs: Keywords) -> Value | None:
        """A function of torch written in C."""
        if isinstance(real, OVERRIDABLE_KINDS) and self.intercepts(args, kwargs):
            if self.m.policy.is_graph_function(real) or real in SHOWN_TO_MODES:
                if not self.active_mode() and real in torch.overrides.get_ignored_functions():
                    return None
                return None if real in NEVER_SHOWN else self.ask(real, args, kwargs)
        return None

    def method_call(self, receiver: Value, name: str, args: Arguments, kwargs: Keywords) -> Value | None:
        """A tensor method written in C, called by name."""
        everything = [receiver, *args]
        if not self.intercepts(everything, kwargs):
            return None
        function = function_behind(name, len(args)) if name.startswith("__") else getattr(torch.Tensor, name)
        if function is None or function in torch.overrides.get_ignored_functions():
            return None
        if isinstance(function, types.FunctionType):
            return self.m.wrap.object(function).call(self.m, everything, kwargs)
        return self.ask(function, everything, kwargs)

    def binary(self, names: list[tuple[Value, str, Value]]) -> Value | None:
        """The operator's special methods, in the order Python tries them; None if all decline."""
        for value, special, other in names:
            if isinstance(value, TensorValue) and not self.is_operand(other) and not isinstance(other, InstanceValue):
                continue
            found = self.special(value, special, other)
            if found is not None and not _is_not_implemented(found):
                return found
        return None

    def special(self, value: Value, special: str, *others: Value) -> Value | None:
        if isinstance(value, InstanceValue):
            return value.special(self.m, special, *others)
        if not isinstance(value, TensorValue):
            return None
        raw = self.m.attributes.class_lookup(value.cls, special)
        if isinstance(raw, types.FunctionType):
            return MethodValue(value, self.m.wrap.object(raw)).call(self.m, list(others), {})
        if not isinstance(raw, DESCRIPTORS):
            return None
        return self.m.calls.builtin_method(value, special, list(others), {})

    def is_operand(self, value: Value) -> bool:
        """May a tensor's operator take it on its other side?"""
        if isinstance(value, Constant):
            return isinstance(value.value, (int, float, complex))
        return isinstance(value, (TensorValue, SymbolicValue)) or self.is_overloaded(value)

    def reflected_first(self, left: Value, right: Value, special: str) -> bool:
        """Does the right operand's reflected method come first: a subclass that overrides it?"""
        lt, rt = left.python_type(), right.python_type()
        if rt is lt or not derives(rt, lt):
            return False
        return self.m.attributes.class_lookup(rt, special) is not self.m.attributes.class_lookup(lt, special)


@functools.cache
def function_behind(special: str, count: int) -> Any:
    """The function that overrides are shown when a special method of a tensor runs, found by asking torch; or None."""
    seen: list[Any] = []

    class Probe(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return NotImplemented

    probe = torch.Tensor.as_subclass(torch.empty(()), Probe)
    arguments = {"__getitem__": (0,), "__setitem__": (0, 0)}.get(special, (torch.empty(()),) * count)
    try:
        with torch_private.enable_torch_function():
            getattr(torch.Tensor, special)(probe, *arguments)
    except TypeError:
        pass  # the probe declined, as it was made to
    raw = vars(torch.Tensor).get(special)
    if isinstance(raw, types.FunctionType):
        return raw
    return seen[0] if seen else None


def _flat(m: Machine, args: Arguments, kwargs: Keywords) -> Iterator[Value]:
    for value in [*args, *kwargs.values()]:
        value = m.wrap.force(value)
        if isinstance(value, (TupleValue, ListValue)):
            yield from value.elements(m)
        else:
            yield value


def _is_not_implemented(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is NotImplemented
