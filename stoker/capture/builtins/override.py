"""`__torch_function__`'s own functions: the base behaviour, the switches, the stack of modes, the questions."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import Any

import torch

from stoker import torch_private
from stoker.capture.autograd_leaves import leaf_break
from stoker.capture.handlers import handles, tensor_special
from stoker.capture.leaf import fresh_leaf
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.context import ScopeValue
from stoker.capture.values.mapping import pairs_of
from stoker.capture.values.subclass import SubclassValue, convert, into_class, is_captured_class
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import NotConstant, Value
from stoker.errors import Break

NONE = Constant(None)


class SwitchValue(ScopeValue):
    """`with torch._C.DisableTorchFunctionSubclass()`: a fact of the evaluator; the graph's tensors are plain anyway."""

    def __init__(self, kind: type) -> None:
        super().__init__(kind, None)

    def method___enter__(self, m: Machine) -> Value:
        self.scope = contextlib.nullcontext()
        m.modes.open_scopes.append(self)
        self.count(m, 1)
        return self

    def method___exit__(self, m: Machine, *error: Value) -> Value:
        m.modes.open_scopes.remove(self)
        self.count(m, -1)
        return NONE

    def count(self, m: Machine, change: int) -> None:
        m.overrides.subclasses_off += change
        if self.kind is torch_private.DisableTorchFunction:
            m.overrides.modes_off += change

    def leave_graph(self, m: Machine) -> None:
        """The graph never entered it."""

    def emit(self, e: Emitting) -> None:
        if self in e.m.modes.open_scopes:
            e.call_function(enter_switch, [Constant(self.kind)])
        else:
            e.call_function(self.kind, [])


def enter_switch(kind: type) -> object:
    switch = kind()
    switch.__enter__()
    return switch


def _switch(kind: Any) -> None:
    handles(kind)(lambda m: SwitchValue(kind))


_switch(torch_private.DisableTorchFunctionSubclass)
_switch(torch_private.DisableTorchFunction)


@handles(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]  # a classmethod
def base_behaviour(
    m: Machine, cls: Value, func: Value, types: Value, args: Value | None = None, kwargs: Value | None = None
) -> Value:
    """`super().__torch_function__`: run the function without overrides, put what it gives into the class."""
    assert isinstance(cls, ClassValue)
    if not all(issubclass(cls.real, m.concrete.constant(t, "types")) for t in types.items_list(m)):
        return Constant(NotImplemented)
    given = args.items_list(m) if args is not None else []
    given_named = None if isinstance(kwargs, Constant) and kwargs.value is None else kwargs
    named = {k.constant(): v for k, v in pairs_of(m, given_named)} if given_named is not None else {}
    count = len(m.record.tensor_of_fake)
    m.overrides.subclasses_off += 1
    try:
        result = func.call(m, given, named)
        if _keeps_class(func):
            return result
        made = set(islice(reversed(m.record.tensor_of_fake), len(m.record.tensor_of_fake) - count))
        return convert(m, result, cls.real, made)
    finally:
        m.overrides.subclasses_off -= 1


def _keeps_class(func: Value) -> bool:
    try:
        return func.constant() in torch_private.unwrapped_functions()
    except NotConstant:
        return False


@tensor_special("as_subclass")
def as_subclass(m: Machine, value: TensorValue, cls: Value) -> Value:
    kind = m.concrete.constant(cls, "as_subclass()")
    if not is_captured_class(kind):
        raise Break("as_subclass()", f"{kind.__qualname__} acts below autograd")
    m.overrides.subclasses_off += 1
    try:
        return into_class(m, value, kind, fresh=False)
    finally:
        m.overrides.subclasses_off -= 1


@handles(torch_private.make_subclass)
def make_subclass(m: Machine, cls: Value, data: Value, require_grad: Value = Constant(False)) -> Value:  # noqa: B008
    kind = m.concrete.constant(cls, "_make_subclass()")
    if kind is torch.nn.Parameter and type(data) is TensorValue and require_grad.truth(m):
        return fresh_leaf(m, data, kind)
    if not isinstance(data, TensorValue) or require_grad.truth(m) or not is_captured_class(kind):
        raise Break("torch.Tensor._make_subclass", "it makes a leaf that needs a gradient, or is not given a tensor")
    m.overrides.subclasses_off += 1
    try:
        plain = m.record.method(data, "detach", [], {})
        assert isinstance(plain, TensorValue)
        return into_class(m, plain, kind, fresh=True)
    finally:
        m.overrides.subclasses_off -= 1


def asked(m: Machine, values: list[Value]) -> Value:
    return Constant(m.overrides.intercepts(values, {}))


handles(torch.overrides.has_torch_function, *torch_private.has_torch_function)(
    lambda m, args: asked(m, args.items_list(m) if m.overrides.active else [])
)
handles(
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
    *torch_private.has_torch_function_each,
)(lambda m, *args: asked(m, list(args)))


@handles(torch_private.torch_function_enabled)
def enabled(m: Machine) -> Value:
    return Constant(not m.overrides.subclasses_off)


@handles(torch_private.is_torch_function_mode_enabled)
def mode_enabled(m: Machine) -> Value:
    return Constant(
        m.overrides.active_mode() or (not m.overrides.modes_off and torch_private.function_mode_count() > 0)
    )


@handles(torch_private.function_mode_count)
def mode_count(m: Machine) -> Value:
    return Constant(torch_private.function_mode_count() + len(m.overrides.modes))


@handles(torch_private.function_mode_at)
def mode_at(m: Machine, index: Value) -> Value:
    place = m.concrete.integer(index) - torch_private.function_mode_count()
    if not 0 <= place < len(m.overrides.modes):
        raise Break("a torch function mode", "it was entered outside the captured code")
    return m.overrides.modes[place]


@handles(torch_private.push_function_mode)
def push_mode(m: Machine, mode: Value) -> Value:
    m.overrides.modes.append(mode)
    m.overrides.active = True
    return NONE


@handles(torch_private.pop_function_mode)
def pop_mode(m: Machine) -> Value:
    if not m.overrides.modes:
        raise Break("a torch function mode", "it was entered outside the captured code")
    return m.overrides.modes.pop()


# Methods that change the tensor object itself: the graph holds another object on the same memory.
RESHAPES = [
    "resize_",
    "resize_as_",
    "t_",
    "transpose_",
    "swapaxes_",
    "swapdims_",
    "squeeze_",
    "unsqueeze_",
    "set_",
    "as_strided_",
    "rename_",
    "detach_",
]


def _changes_the_object(name: str) -> None:
    def handler(m: Machine, value: TensorValue, *args: Value, **kwargs: Value) -> Value:
        if isinstance(value, SubclassValue) and value.node in m.record.conversions:
            value.unsupported(f"{name}()", "call it outside the compiled function")
        return m.record.method(value, name, list(args), kwargs)

    tensor_special(name)(handler)


for _name in RESHAPES:
    _changes_the_object(_name)


@tensor_special("requires_grad_")
def requires_grad_(m: Machine, value: TensorValue, requires_grad: Value = Constant(True)) -> Value:  # noqa: B008
    """A tensor may become a leaf of autograd, or be one no longer, as long as nobody behind the graph can tell when."""
    if requires_grad.python_type() is not bool:
        return m.record.method(value, "requires_grad_", [requires_grad], {})  # eager refuses it
    wanted = requires_grad.truth(m)
    if value.fake.requires_grad == wanted:
        return value
    if isinstance(value, SubclassValue) or not value.fake.is_leaf:
        raise leaf_break(value.describe())
    if value.source is None and wanted:
        m.record.leaves.setdefault(value.node, m.step)
    return m.record.method(value, "requires_grad_", [Constant(wanted)], {})
