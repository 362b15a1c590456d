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
from typing import TYPE_CHECKING, Any

import torch

from stoker import torch_private
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

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

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
    """Mixed into the machine. `overriding` is set when the first object that may override a call is met."""

    def start_overrides(self: Machine) -> None:
        self.overriding = False
        self.modes: list[Value] = []
        self.subclasses_off = 0 if torch_private.torch_function_enabled() else 1
        self.modes_off = 1 if torch_private.torch_function_all_disabled() else 0

    def note_class(self: Machine, cls: type) -> None:
        """An object of this class was met: may it override calls?"""
        if not self.overriding and hasattr(cls, NAME):
            self.overriding = True

    def is_overloaded(self: Machine, value: Value) -> bool:
        """Does torch ask this argument's `__torch_function__`?"""
        if self.subclasses_off or not isinstance(value, (SubclassValue, InstanceValue)):
            return False
        return self.class_overrides(value.python_type())

    def class_overrides(self: Machine, cls: type) -> bool:
        raw = self.class_lookup(cls, NAME)
        return raw is not self.MISSING and raw is not torch_private.disabled_torch_function

    def active_mode(self: Machine) -> bool:
        return bool(self.modes) and not self.modes_off

    def intercepts(self: Machine, args: Arguments, kwargs: Keywords) -> bool:
        """Is a call with these arguments overridden?"""
        if not self.overriding:
            return False
        return self.active_mode() or any(self.is_overloaded(v) for v in _flat(self, args, kwargs))

    def override(self: Machine, function: Any, args: Arguments, kwargs: Keywords) -> Value | None:
        """What the overrides make of `function(*args, **kwargs)`; None if there are none."""
        if not self.intercepts(args, kwargs):
            return None
        overloaded = self.overloaded(args, kwargs)
        kinds = TupleValue([self.wrap_object(v.python_type()) for v in overloaded])
        given = [self.wrap_object(function), kinds, TupleValue(list(args))]
        if kwargs:
            given.append(DictValue({k: (Constant(k), v) for k, v in kwargs.items()}))
        if self.active_mode():
            found = self.ask_mode(given)
            if found is not None:
                return found
        for value in overloaded:
            found = self.call(self.override_method(value), list(given), {})
            if not _is_not_implemented(found):
                return found
        name = torch.overrides.resolve_name(function)
        words = f"no implementation found for '{name}' on types that implement {NAME}: "
        self.raise_(TypeError, words + str([v.python_type() for v in overloaded]))
        return None

    def ask_mode(self: Machine, given: Arguments) -> Value | None:
        """Call the innermost mode, without it on the stack."""
        mode = self.modes.pop()
        try:
            found = self.call(mode.attribute(self, NAME), list(given), {})
        finally:
            self.modes.append(mode)
        return None if _is_not_implemented(found) else found

    def overloaded(self: Machine, args: Arguments, kwargs: Keywords) -> list[Value]:
        """Arguments to ask, in torch's order: left to right, one a class, a subclass before its base."""
        found: list[Value] = []
        for value in _flat(self, args, kwargs):
            cls = value.python_type()
            if not self.is_overloaded(value) or any(v.python_type() is cls for v in found):
                continue
            place = next((i for i, v in enumerate(found) if issubclass(cls, v.python_type())), len(found))
            found.insert(place, value)
        return found

    def override_method(self: Machine, value: Value) -> Value:
        raw = self.class_lookup(value.python_type(), NAME)
        if isinstance(raw, types.FunctionType):
            raise Break(NAME, "it is a plain method, which torch warns about", "make it a classmethod")
        return self.bind(raw, value, value.python_type())

    def override_attribute(self: Machine, value: TensorValue, name: str) -> Value | None:
        """An attribute of a tensor that is a property written in C: read through the overrides."""
        if name == "__class__" or not self.intercepts([value], {}):
            return None
        raw = self.class_lookup(value.cls, name)
        if not isinstance(raw, (types.GetSetDescriptorType, property)) or name in ("__dict__", "__weakref__"):
            return None
        if raw is not self.tensor_class_attribute(name):
            return None
        if isinstance(raw, property):
            return self.call(self.wrap_object(raw.fget), [value], {})
        function = raw.__get__
        if function in torch.overrides.get_ignored_functions():
            return None
        return self.override(function, [value], {})

    def override_call(self: Machine, real: Any, args: Arguments, kwargs: Keywords) -> Value | None:
        """A function of torch written in C."""
        if isinstance(real, OVERRIDABLE_KINDS) and self.intercepts(args, kwargs):
            if self.policy.is_graph_function(real) or real in SHOWN_TO_MODES:
                if not self.active_mode() and real in torch.overrides.get_ignored_functions():
                    return None
                return None if real in NEVER_SHOWN else self.override(real, args, kwargs)
        return None

    def override_method_call(
        self: Machine, receiver: Value, name: str, args: Arguments, kwargs: Keywords
    ) -> Value | None:
        """A tensor method written in C, called by name."""
        everything = [receiver, *args]
        if not self.intercepts(everything, kwargs):
            return None
        function = function_behind(name, len(args)) if name.startswith("__") else getattr(torch.Tensor, name)
        if function is None or function in torch.overrides.get_ignored_functions():
            return None
        if isinstance(function, types.FunctionType):
            return self.call(self.wrap_object(function), everything, kwargs)
        return self.override(function, everything, kwargs)

    def override_binary(self: Machine, names: list[tuple[Value, str, Value]]) -> Value | None:
        """The operator's special methods, in the order Python tries them; None if all decline."""
        for value, special, other in names:
            if isinstance(value, TensorValue) and not _is_operand(self, other) and not isinstance(other, InstanceValue):
                continue
            found = self.override_special(value, special, other)
            if found is not None and not _is_not_implemented(found):
                return found
        return None

    def override_special(self: Machine, value: Value, special: str, *others: Value) -> Value | None:
        if isinstance(value, InstanceValue):
            return value.special(self, special, *others)
        if not isinstance(value, TensorValue):
            return None
        raw = self.class_lookup(value.cls, special)
        if isinstance(raw, types.FunctionType):
            return self.call(MethodValue(value, self.wrap_object(raw)), list(others), {})
        if not isinstance(raw, DESCRIPTORS):
            return None
        return self.call_builtin_method(value, special, list(others), {})

    def reflected_first(self: Machine, left: Value, right: Value, special: str) -> bool:
        """Does the right operand's reflected method come first: a subclass that overrides it?"""
        lt, rt = left.python_type(), right.python_type()
        if rt is lt or not issubclass(rt, lt):
            return False
        return self.class_lookup(rt, special) is not self.class_lookup(lt, special)


@functools.cache
def function_behind(special: str, count: int) -> Any:
    """The function that overrides are shown when a special method of a tensor runs, found by asking torch; or None."""
    seen: list[Any] = []

    class Probe(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
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
        value = m.force(value)
        if isinstance(value, (TupleValue, ListValue)):
            yield from value.elements(m)
        else:
            yield value


def _is_operand(m: Machine, value: Value) -> bool:
    if isinstance(value, Constant):
        return isinstance(value.value, (int, float, complex))
    return isinstance(value, (TensorValue, SymbolicValue)) or m.is_overloaded(value)


def _is_not_implemented(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is NotImplemented
