"""Context managers of torch that are written in C, or that mean nothing to a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from stoker import torch_private
from stoker.capture.handlers import handles
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
    return m.wrap.object(contextlib.nullcontext).call(m, [], {})


@handles(torch_private.InferenceMode)
def inference_mode(m: Machine, enabled: Value) -> Value:
    return ScopeValue(torch_private.InferenceMode, m.concrete.constant(enabled, "torch.inference_mode()"))


def _attention_getter(name: str, get: Callable[[], bool]) -> None:
    def handler(m: Machine) -> Value:
        now = get()
        if f"attention {name}" not in m.modes.switched:
            m.guards.add(ATTENTION, Holds(lambda _: get() == now, f"switch {name} is {now}"))
        return Constant(now)

    handles(get)(handler)


def _attention_setter(name: str, set_: Callable[[bool], None]) -> None:
    def handler(m: Machine, enabled: Value) -> Value:
        m.modes.switched.add(f"attention {name}")
        m.concrete.run(set_, m.concrete.constant(enabled, "a switch of attention"))
        node = m.record.graph.create_node("call_function", set_, (m.record.to_node(enabled),), {})
        node.meta["location"] = m.location()
        m.modes.changes += 1
        return NONE

    handles(set_)(handler)


for _name, (_get, _set) in torch_private.ATTENTION_SWITCHES.items():
    _attention_getter(_name, _get)
    _attention_setter(_name, _set)
