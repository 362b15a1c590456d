"""Scopes of torch's own that captured code enters and leaves: inference mode, a default device.

While capturing, the real scope is open, so that fake runs see it. In the graph, entering and leaving are nodes. A graph that
ends at a break inside a scope leaves it, and the code after the graph enters it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from torch.fx import Node

    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


def enter_scope(make: Callable[..., Any], *args: Any) -> Any:
    """Enter a new scope; what is returned is the way out."""
    scope = make(*args)
    scope.__enter__()
    return scope


def leave_scope(scope: Any) -> None:
    scope.__exit__(None, None, None)


class ScopeValue(Value):
    """A context manager of torch that changes how operators behave, and nothing else."""

    def __init__(self, kind: type, make: Callable[..., Any], *args: Any) -> None:
        self.kind, self.make, self.args = kind, make, args
        self.scope: Any = None
        self.node: Node | None = None

    def python_type(self) -> type:
        return self.kind

    def truth(self, m: Machine) -> bool:
        return True

    def attribute(self, m: Machine, name: str) -> Value:
        return BuiltinMethod(self, name)

    def method___enter__(self, m: Machine) -> Value:
        self.scope = enter_scope(self.make, *self.args)
        m.open_scopes.append(self)
        self.node = self._node(m, enter_scope, (self.make, *self.args))
        return self

    def method___exit__(self, m: Machine, *error: Value) -> Value:
        leave_scope(self.scope)
        m.open_scopes.remove(self)
        self.leave_graph(m)
        return Constant(None)

    def leave_graph(self, m: Machine) -> None:
        self._node(m, leave_scope, (self.node,))

    def _node(self, m: Machine, target: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        node = m.graph.create_node("call_function", target, args, {})
        node.meta["location"] = m.location()
        m.mode_changes += 1
        return node

    def emit(self, e: Emitter) -> None:
        if self not in e.m.open_scopes:
            e.call_function(self.make, [Constant(a) for a in self.args])
        else:
            e.call_function(enter_scope, [Constant(self.make), *(Constant(a) for a in self.args)])
