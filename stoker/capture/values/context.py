"""Scopes of torch's own that captured code enters and leaves: inference mode, a default device.

While capturing, the real scope is open, so that fake runs see it. In the graph, entering and leaving are nodes. A graph that
ends at a break inside a scope leaves it, and the code after the graph enters it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.graph.modes import enter_device, enter_inference_mode, leave_scope

ENTER: dict[type, Callable[..., Any]] = {torch_private.InferenceMode: enter_inference_mode, torch.device: enter_device}


class WholeScope:
    """A scope that lies in one graph: a break inside is none that can be gone on from."""

    scope: Any

    def refuse(self, m: Machine, reason: Break) -> NoReturn:
        raise NotImplementedError


class ScopeValue(Value):
    """A context manager of torch that changes how operators behave, and nothing else."""

    def __init__(self, kind: type, argument: Any) -> None:
        self.kind, self.argument = kind, argument
        self.scope: Any = None
        self.node: Node | None = None

    def python_type(self) -> type:
        return self.kind

    def attribute(self, m: Machine, name: str) -> Value:
        return BuiltinMethod(self, name)

    def method___enter__(self, m: Machine) -> Value:
        changes = not self._is_open_already()
        self.scope = ENTER[self.kind](self.argument)
        m.modes.open_scopes.append(self)
        self.node = self._node(m, ENTER[self.kind], (self.argument,)) if changes else None
        return self

    def method___exit__(self, m: Machine, *error: Value) -> Value:
        if self.node is None and torch.is_grad_enabled():  # turned on inside: to leave turns it off
            self._node(m, torch_private.set_grad_enabled, (False,))
        leave_scope(self.scope)
        m.modes.open_scopes.remove(self)
        self.leave_graph(m)
        return Constant(None)

    def leave_graph(self, m: Machine) -> None:
        if self.node is not None:
            self._node(m, leave_scope, (self.node,))

    def _is_open_already(self) -> bool:
        """Inference mode inside inference mode: it changes nothing, so that a graph has no node for it."""
        is_on = torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
        return self.kind is torch_private.InferenceMode and self.argument is True and is_on

    def _node(self, m: Machine, target: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        node = m.record.graph.create_node("call_function", target, args, {})
        node.meta["location"] = m.location()
        m.modes.changes += 1
        return node

    def emit(self, e: Emitting) -> None:
        make = ENTER[self.kind] if self in e.m.modes.open_scopes else self.kind
        e.call_function(make, [Constant(self.argument)])
