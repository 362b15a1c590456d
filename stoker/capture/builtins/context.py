"""Context managers of torch that are written in C, or that mean nothing to a graph; contexts of contextvars."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Callable
from typing import Any

import torch

from stoker import torch_private
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import modes
from stoker.capture.values.ambient import ContextValue, variables
from stoker.capture.values.constant import Constant
from stoker.capture.values.context import ScopeValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.guard import Holds
from stoker.guard.source import Fixed

NONE = Constant(None)
ATTENTION = Fixed(torch_private.ATTENTION_SWITCHES, "torch.nn.attention")
SAVED = Fixed(torch.autograd.graph, "torch.autograd.graph")


@handles(torch.profiler.record_function)
def record_function(m: Machine, name: Value, args: Value = Constant(None)) -> Value:  # noqa: B008
    """A label for the profiler. Kernels compute what is inside of it together with what is not: it is shown around the graph. What varies
    is not looked at for it."""
    if type(name) is Constant and isinstance(name.value, str):
        m.record.labels[name.value] = None
    return m.wrap.object(contextlib.nullcontext).call(m, [], {})


@handles(torch_private.InferenceMode)
def inference_mode(m: Machine, enabled: Value) -> Value:
    return ScopeValue(torch_private.InferenceMode, m.concrete.constant(enabled, "torch.inference_mode()"))


@handles(contextvars.copy_context)
def copy_context(m: Machine) -> Value:
    around = m.modes.context
    held = dict(around.held) if around is not None else {}
    is_empty = around is not None and around.is_empty
    return ContextValue({**held, **{variable: variable.current for variable in variables(m)}}, is_empty)


@handles(contextvars.Context)
def context(m: Machine) -> Value:
    return ContextValue({}, is_empty=True)


@handles(inspect.unwrap(torch.autograd.graph.disable_saved_tensors_hooks))
def disable_saved_tensors_hooks(m: Machine, error_message: Value) -> Value:
    """Hooks that are active already make it an error."""
    top = torch_private.top_saved_tensors_hooks
    if not m.guards.ask(SAVED, SAVED.value, lambda _: top(False) is None, "has no hooks for saved tensors"):
        raise Break("disable_saved_tensors_hooks()", "hooks for saved tensors are active")
    return m.wrap.object(modes.without_saved_tensors_hooks).call(m, [error_message], {})


def _getter(place: Fixed, name: str, get: Callable[[], Any]) -> None:
    def handler(m: Machine) -> Value:
        now = get()
        if name not in m.modes.switched:
            m.guards.add(place, Holds(lambda _: get() == now, f"switch {name} is {now}"))
        return Constant(now)

    handles(get)(handler)


def _setter(name: str, set_: Callable[[Any], None]) -> None:
    def handler(m: Machine, setting: Value) -> Value:
        m.modes.switched.add(name)
        m.concrete.run(set_, m.concrete.constant(setting, f"the switch {name}"))
        node = m.record.graph.create_node("call_function", set_, (m.record.to_node(setting),), {})
        node.meta["location"] = m.location()
        m.modes.changes += 1
        return NONE

    handles(set_)(handler)


for _name, (_get, _set) in torch_private.ATTENTION_SWITCHES.items():
    _getter(ATTENTION, _name, _get)
    _setter(_name, _set)
_getter(SAVED, "saved_tensors_hooks", torch_private.saved_tensors_hooks_refusal)
_setter("saved_tensors_hooks", torch_private.refuse_saved_tensors_hooks)
