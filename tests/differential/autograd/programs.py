"""Capture for tests: run a function once, write down its torch-level calls, lift every tensor it met to an input.

A stand-in for the real capture, for programs without data-dependent control flow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.overrides import TorchFunctionMode


class Capture(TorchFunctionMode):
    """Records calls on tensors. Tensors not seen before become placeholders, in the order they are met."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph()
        self.nodes: dict[int, Any] = {}
        self.alive: list[Any] = []
        self.lifted: list[torch.Tensor] = []
        self._last_placeholder: Any = None

    def placeholder(self, tensor: torch.Tensor) -> Any:
        first = next(iter(self.graph.nodes), None)
        where = (
            self.graph.inserting_after(self._last_placeholder)
            if self._last_placeholder
            else (self.graph.inserting_before(first) if first is not None else self.graph.inserting_before())
        )
        with where:
            node = self.graph.placeholder(f"input_{len(self.lifted)}")
        self._last_placeholder = node
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)
        self.lifted.append(tensor)
        return node

    def to_node(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.nodes[id(value)] if id(value) in self.nodes else self.placeholder(value)
        if isinstance(value, slice):
            return slice(*(self.to_node(v) for v in (value.start, value.stop, value.step)))
        if isinstance(value, torch.Size):
            return tuple(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_node(v) for v in value)
        if isinstance(value, dict):
            return {k: self.to_node(v) for k, v in value.items()}
        return value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = self.to_node(args), self.to_node(kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        self.alive += [args, kwargs, result]
        name = getattr(func, "__name__", "")
        keep = name in ("_set_grad_enabled", "__setitem__", "requires_grad_") or holds_tensor(result)
        if not keep:
            return result
        if func is torch.Tensor.data.__set__:
            raise NotImplementedError
        if name == "__get__":
            attribute = func.__self__.__name__
            node = self.graph.call_function(getattr, (before[0][0], attribute))
        elif getattr(torch.Tensor, name, None) is func:
            node = self.graph.call_method(name, before[0], before[1])
        else:
            node = self.graph.call_function(func, *before)
        self.bind(result, node)
        return result

    def bind(self, result: Any, node: Any) -> None:
        if isinstance(result, torch.Tensor):
            self.nodes.setdefault(id(result), node)
        elif isinstance(result, (list, tuple)):
            for index, part in enumerate(result):
                if isinstance(part, torch.Tensor) and id(part) not in self.nodes:
                    self.bind(part, self.graph.call_function(operator.getitem, (node, index)))


def holds_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(holds_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)


def capture(function: Callable[..., Any], *args: Any) -> tuple[GraphModule, list[torch.Tensor], Any]:
    """The captured graph, the inputs it takes, and what the run itself returned. Arguments come first, in order."""
    recorder = Capture()
    flat: list[torch.Tensor] = []
    flatten(args, flat)
    for tensor in flat:
        if id(tensor) not in recorder.nodes:
            recorder.placeholder(tensor)
    with recorder:
        result = function(*args)
    outputs: list[Any] = []
    flatten(result, outputs)
    recorder.graph.output(tuple(recorder.to_node(o) for o in outputs))
    return GraphModule(torch.nn.Module(), recorder.graph), recorder.lifted, result


def flatten(value: Any, into: list[Any]) -> None:
    if isinstance(value, (list, tuple)):
        for part in value:
            flatten(part, into)
    elif isinstance(value, dict):
        for part in value.values():
            flatten(part, into)
    elif isinstance(value, torch.Tensor):
        into.append(value)
