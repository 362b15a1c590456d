"""Context managers of torch that are written in C, or that mean nothing to a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from stoker import torch_private
from stoker.capture.builtin import handles
from stoker.capture.values.constant import Constant
from stoker.capture.values.context import ScopeValue
from stoker.capture.values.value import Value
from stoker.guard.guard import Holds
from stoker.guard.source import Fixed

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

NONE = Constant(None)
ATTENTION = Fixed(torch_private.ATTENTION_SWITCHES, "torch.nn.attention")


@handles(torch.profiler.record_function)
def record_function(m: Machine, name: Value, args: Value = Constant(None)) -> Value:  # noqa: B008
    """A label for the profiler: the graph has its own."""
    return m.call(m.wrap_object(contextlib.nullcontext), [], {})


@handles(torch_private.InferenceMode)
def inference_mode(m: Machine, enabled: Value) -> Value:
    return ScopeValue(torch_private.InferenceMode, m.constant_of(enabled, "torch.inference_mode()"))


def _attention_getter(name: str, get: Callable[[], bool]) -> None:
    def handler(m: Machine) -> Value:
        now = get()
        if f"attention {name}" not in m.names:
            m.guard(ATTENTION, Holds(lambda _: get() == now, f"switch {name} is {now}"))
        return Constant(now)

    handles(get)(handler)


def _attention_setter(name: str, set_: Callable[[bool], None]) -> None:
    def handler(m: Machine, enabled: Value) -> Value:
        m.names.add(f"attention {name}")
        m.run_real(set_, m.constant_of(enabled, "a switch of attention"))
        node = m.graph.create_node("call_function", set_, (m.to_node(enabled),), {})
        node.meta["location"] = m.location()
        m.mode_changes += 1
        return NONE

    handles(set_)(handler)


for _name, (_get, _set) in torch_private.ATTENTION_SWITCHES.items():
    _attention_getter(_name, _get)
    _attention_setter(_name, _set)
