"""Hooks that captured code puts on tensors.

A hook of a leaf is called by the backward that captured code runs, like any function. One of a tensor in the middle becomes a graph of
its own, which autograd calls with the gradient, here or behind the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.utils.hooks

from stoker.capture import engine, subgraph
from stoker.capture.handlers import handles
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.size import SYMBOLIC
from stoker.capture.values.subclass import SubclassValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.capture.machine import Machine


class HandleValue(Value):
    """What registering a hook gives: it can take the hook away."""

    def __init__(self, remove: Callable[[Machine], None]) -> None:
        self.remove = remove

    def python_type(self) -> type:
        return torch.utils.hooks.RemovableHandle

    def attribute(self, m: Machine, name: str) -> Value:
        return BuiltinMethod(self, name)

    def method_remove(self, m: Machine) -> Value:
        self.remove(m)
        return Constant(None)


def _on_leaf(m: Machine, tensor: TensorValue, table: str, hook: Value) -> Value:
    """A hook on a leaf that captured code made: nobody but a backward inside can call it."""
    hooks = tensor.hooks.setdefault(table, [])
    hooks.append(hook)
    return HandleValue(lambda m: hooks.remove(hook))


@handles(torch.Tensor.register_hook)
def register_hook(m: Machine, tensor: Value, hook: Value) -> Value:
    tensor = m.wrap.force(tensor)
    if not isinstance(tensor, TensorValue) or isinstance(tensor, SubclassValue) or tensor.source is not None:
        raise Break(
            "register_hook()", "the hook stays on a tensor from outside, for as long as it lives", "register it outside"
        )
    if not tensor.fake.requires_grad:
        m.exceptions.raise_(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    if tensor.fake.is_leaf:
        return _on_leaf(m, tensor, "_backward_hooks", hook)
    return _in_the_middle(m, tensor, hook)


@handles(torch.Tensor.register_post_accumulate_grad_hook)
def register_post_accumulate_grad_hook(m: Machine, tensor: Value, hook: Value) -> Value:
    tensor = m.wrap.force(tensor)
    if not isinstance(tensor, TensorValue) or tensor.source is not None or not tensor.fake.is_leaf:
        raise Break(
            "register_post_accumulate_grad_hook()", "the hook stays on a tensor from outside", "register it outside"
        )
    return _on_leaf(m, tensor, "_post_accumulate_grad_hooks", hook)


def _in_the_middle(m: Machine, tensor: TensorValue, hook: Value) -> Value:
    """A graph; or, of a hook that does more than compute, a function that a backward inside captured code calls."""
    known = set(m.record.graph.nodes)
    try:
        return _as_graph(m, tensor, hook)
    except Break:
        for node in reversed([n for n in m.record.graph.nodes if n not in known and n.op != "placeholder"]):
            if not isinstance(node.meta.get("example_value"), SYMBOLIC):
                m.record.graph.erase_node(node)
        m.record.watched.setdefault(tensor, m.step)
        return _on_leaf(m, tensor, "_backward_hooks", hook)


def _as_graph(m: Machine, tensor: TensorValue, hook: Value) -> Value:
    given = subgraph.stand_in(m, tensor)
    given.fake.requires_grad_(False)
    branch = subgraph.capture_branch(m, "register_hook()", hook, [given])
    if len(branch.tensors) > 1 or (branch.tensors and branch.returned is not branch.tensors[0]):
        raise Break("register_hook()", "the hook returns something other than a gradient")
    closed = subgraph.close(m, [branch], [given])
    if not branch.tensors:  # it only looks: without effects, nobody can tell
        return HandleValue(lambda m: None)
    target = engine.Hook(closed.inside[0])
    subgraph.call(m, target, [tensor.node], closed)
    return HandleValue(lambda m: _remove(m, target))


def _remove(m: Machine, hook: Any) -> None:
    m.record.call(hook.remove, [], {}, keep=True)
