"""Hooks that captured code puts on tensors.

A hook of a leaf is called by the backward that captured code runs, like any function; on a leaf from outside it is put behind the graph.
One of a tensor in the middle becomes a graph of its own, which autograd calls with the gradient, here or behind the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.hooks

from stoker.capture import engine, subgraph
from stoker.capture.handlers import handles
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod, BuiltinValue
from stoker.capture.values.subclass import SubclassValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import BeginAnew, Break
from stoker.graph import program_hook
from stoker.guard.source import Fixed


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


REGISTER = {
    "_backward_hooks": torch.Tensor.register_hook,
    "_post_accumulate_grad_hooks": torch.Tensor.register_post_accumulate_grad_hook,
    "attached": program_hook.attach,
}


class WatchedHandle(HandleValue):
    """Of a hook that a backward inside captured code calls. One that outlives the captured code is of a hook that is called later."""

    def __init__(self, hooks: list[Value], hook: Value, step: int) -> None:
        super().__init__(lambda m: hooks.remove(hook))
        self.step = step

    def emit(self, e: Emitting) -> None:
        e.m.sizes.history.hooks_called_later.add(self.step)
        raise BeginAnew


class OutsideHandle(HandleValue):
    """What takes a hook away from a leaf that existed before the call. The hook is put there once the graph has run: until then
    nobody calls it but a backward inside."""

    def __init__(self, m: Machine, tensor: TensorValue, table: str, hook: Value) -> None:
        super().__init__(self._take_away)
        self.tensor, self.table, self.hook, self.is_removed = tensor, table, hook, False
        tensor.hooks.setdefault(table, []).append(hook)
        m.effects.defer(BuiltinValue(_is_registered), [self], {})

    def _take_away(self, m: Machine) -> None:
        if not self.is_removed:
            self.is_removed = True
            self.tensor.hooks[self.table].remove(self.hook)
            m.effects.deferred[:] = [call for call in m.effects.deferred if call[1] != [self]]

    def emit(self, e: Emitting) -> None:
        e.call_function(REGISTER[self.table], [self.tensor, self.hook])
        e.name_top(self)
        if self.is_removed:
            e.call_method_on_top("remove", [])


def _is_registered(handle: Any) -> None:
    """Making the handle has registered the hook."""


def _outside(m: Machine, tensor: TensorValue, table: str, hook: Value) -> Value:
    if isinstance(tensor, SubclassValue) or not tensor.attribute(m, "is_leaf").truth(m):
        words = "the hook is put on a result of a computation outside, which may be written to here"
        raise Break(f"{REGISTER[table].__name__}()", words, "register it outside")
    return OutsideHandle(m, tensor, table, hook)


@handles(torch.Tensor.register_hook)
def register_hook(m: Machine, tensor: Value, hook: Value) -> Value:
    tensor = m.wrap.force(tensor)
    if not isinstance(tensor, TensorValue) or isinstance(tensor, SubclassValue):
        raise Break("register_hook()", "the hook is put on a tensor of a class of its own", "register it outside")
    if not tensor.fake.requires_grad:
        m.exceptions.raise_(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    if tensor.source is not None:
        return _outside(m, tensor, "_backward_hooks", hook)
    if tensor.fake.is_leaf:
        return _on_leaf(m, tensor, "_backward_hooks", hook)
    return _in_the_middle(m, tensor, hook)


@handles(torch.Tensor.register_post_accumulate_grad_hook)
def register_post_accumulate_grad_hook(m: Machine, tensor: Value, hook: Value) -> Value:
    tensor = m.wrap.force(tensor)
    if not isinstance(tensor, TensorValue) or not tensor.fake.requires_grad:
        raise Break("register_post_accumulate_grad_hook()", "the tensor has no gradient to accumulate")
    if tensor.source is not None:
        return _outside(m, tensor, "_post_accumulate_grad_hooks", hook)
    if not tensor.fake.is_leaf:
        raise Break("register_post_accumulate_grad_hook()", "the tensor accumulates no gradient of its own")
    return _on_leaf(m, tensor, "_post_accumulate_grad_hooks", hook)


def _in_the_middle(m: Machine, tensor: TensorValue, hook: Value) -> Value:
    """A graph; or, of a hook that does more than compute, a function that a backward inside captured code calls."""
    known = set(m.record.graph.nodes)
    try:
        return _as_graph(m, tensor, hook)
    except Break:
        subgraph.forget(m, known)
        if m.step in m.sizes.history.hooks_called_later:
            return call_later(m, tensor, hook)
        m.record.watched.setdefault(tensor, m.step)
        _on_leaf(m, tensor, "_backward_hooks", hook)
        return WatchedHandle(tensor.hooks["_backward_hooks"], hook, m.step)


def call_later(m: Machine, tensor: TensorValue, hook: Value) -> Value:
    """A hook that only a backward behind the graph calls: an operator that has a key to it, which the hook is attached to behind the graph."""
    called, key = program_hook.ProgramHook(), new_key(m)
    m.record.call(called, [tensor, key], {}, keep=True)
    m.record.called_later.append(tensor)
    return OutsideHandle(m, key, "attached", hook)


def new_key(m: Machine) -> KeyValue:
    """Another one for each call."""
    real = program_hook.new_key(None)
    fake = m.record.fake_mode.from_real(real)
    node = m.record.input(Fixed(real, "hook"), real, fake)
    m.record.conversions[node] = program_hook.new_key
    return KeyValue(node, fake)


class KeyValue(TensorValue):
    """The key to a hook that is attached behind the graph."""

    def emit(self, e: Emitting) -> None:
        e.load_output(self.node)


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
