"""Hooks on the tensors that autograd saves, which captured code sets around operators: `torch.autograd.graph.saved_tensors_hooks`.

Whoever differentiates the graph runs it, with the program's own functions set where the program sets them: what they compute becomes a part of
what is saved. While capturing, the functions are evaluated on the side for each kind of tensor that is saved, so that what they depend on is
guarded. Where they do more than compute, or read other tensors, they must see what eager saves: CPython runs the function that sets them, and all
that it calls.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, NoReturn

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.capture import subgraph
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import hooking
from stoker.capture.values.constant import Constant
from stoker.capture.values.context import WholeScope
from stoker.capture.values.function import FunctionValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break, SkipFrame, StepBreak
from stoker.fake import FakeTensor
from stoker.fake.meta import Meta, meta_of
from stoker.graph.modes import EnterHooks, enter_hooks, leave_scope

WHAT = "torch.autograd.graph.saved_tensors_hooks()"


class HooksInside(WholeScope):
    """Hooks that captured code has set and not taken away yet. While capturing, others collect the tensors that are saved."""

    def __init__(self, m: Machine, pack: Value, unpack: Value) -> None:
        self.pack, self.unpack, self.place = pack, unpack, _place(m)
        self.saved: dict[Meta, None] = {}
        real = _real(m, pack), _real(m, unpack)
        self.contents = _contents(pack, unpack)
        self.scope = m.concrete.run(enter_hooks, self.collect, lambda tensor: tensor)
        m.modes.open_scopes.append(self)
        self.node = _node(m, EnterHooks(*real), ())

    def collect(self, tensor: torch.Tensor) -> torch.Tensor:
        meta = (
            tensor.meta if isinstance(tensor, FakeTensor) else meta_of(tensor.dtype, tensor.shape, None, tensor.device)
        )
        self.saved[meta] = None
        return tensor

    def leave(self, m: Machine) -> None:
        leave_scope(self.scope)
        m.modes.open_scopes.remove(self)
        try:
            if self.contents != _contents(self.pack, self.unpack):
                raise Break(WHAT, "a variable that it reads is set while it is active")
            for meta in self.saved:
                rehearse(m, self, meta)
        except Break as reason:
            self.refuse(m, reason)
        _node(m, leave_scope, (self.node,))

    def refuse(self, m: Machine, reason: Break) -> NoReturn:
        _refuse(m, self.place, reason)


def _place(m: Machine) -> tuple[int, bool]:
    """The step of the root frame at which hooks are set, and whether they stay when it is done: a function of the program that is called
    takes them away again, library code and generators leave them to the root."""
    frame = m.current
    while frame.parent is not None and (
        m.policy.is_library(frame.program.code.co_filename) or frame.program.code.co_flags & inspect.CO_GENERATOR
    ):
        frame = frame.parent
    return m.step, frame is m.root


def _refuse(m: Machine, place: tuple[int, bool], reason: Break) -> NoReturn:
    step, stays = place
    words = f"what is done to tensors that are saved is not captured: {reason.reason}"
    if stays:
        raise SkipFrame(words, deep=True)
    found = Break(WHAT, words, reason.fix)
    m.blame(found)
    raise StepBreak(step, found)


def rehearse(m: Machine, hooks: HooksInside, meta: Meta) -> None:
    known = set(m.record.graph.nodes)
    given = subgraph.of_meta(m, meta)
    both = m.wrap.object(hooking.packed_and_unpacked)
    with torch.no_grad():  # as autograd calls both
        branch = subgraph.capture_branch(m, WHAT, both, [hooks.pack, hooks.unpack, given])
    inside = {*branch.nodes, given.node}
    if any(source not in inside for node in branch.nodes for source in node.all_input_nodes):
        raise Break(WHAT, "it reads a tensor or a size besides what it is given", "save what it reads as well")
    subgraph.forget(m, known)


def _real(m: Machine, hook: Value) -> Any:
    """The function itself: the program's own, or one like it, where it is made inside and refers to nothing but plain objects."""
    hook = m.wrap.force(hook)
    if not isinstance(hook, FunctionValue):
        raise Break(WHAT, f"{hook.describe()} is no plain function", "give it a function")
    if hook.real is not None:
        return hook.real
    if hook.globals.real is None:
        raise Break(WHAT, "the function was made with globals of its own")
    cells = [types.CellType(_content(m, cell.get(m))) for cell in hook.closure(m)]
    defaults = tuple(_content(m, value) for value in hook.defaults(m))
    return types.FunctionType(hook.code, hook.globals.real, hook.name, defaults, tuple(cells) or None)


def _contents(*hooks: Value) -> list[int]:
    """What variables hold that functions made inside refer to."""
    made = [hook for hook in hooks if isinstance(hook, FunctionValue) and hook.real is None]
    return [id(cell.contents) for hook in made for cell in hook._closure]


def _content(m: Machine, value: Value | None) -> Any:
    found = m.wrap.force(value) if value is not None else Constant(None)
    real = getattr(found, "real", None)
    if isinstance(real, (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)):
        return real
    if isinstance(found, TensorValue):
        raise Break(WHAT, "it reads a tensor besides what it is given", "save what it reads as well")
    return m.concrete.constant(found, WHAT)


def _node(m: Machine, target: Any, args: tuple[Any, ...]) -> Node:
    node = m.record.graph.create_node("call_function", target, args, {})
    node.meta["location"] = m.location()
    m.modes.changes += 1
    return node


@handles(torch_private.push_saved_tensors_hooks)
def push(m: Machine, pack: Value, unpack: Value) -> Value:
    try:
        HooksInside(m, pack, unpack)
    except Break as reason:
        _refuse(m, _place(m), reason)
    return Constant(None)


@handles(torch_private.pop_saved_tensors_hooks)
def pop(m: Machine) -> Value:
    inner = [scope for scope in m.modes.open_scopes if isinstance(scope, HooksInside)]
    if not inner:
        raise Break(WHAT, "hooks are taken away that were set before the call")
    inner[-1].leave(m)
    return Constant(None)
