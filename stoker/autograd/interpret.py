"""Run a captured graph, node by node, telling the trace where in the user's program it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule
from torch.fx.node import map_arg

from stoker.autograd.refusal import CannotTrace
from stoker.fake.history import is_refused_write
from stoker.fake.recurrent import whole
from stoker.fake.tensor import data_dependent
from stoker.graph.calling import quietly
from stoker.graph.modes import FoundModes
from stoker.marks import ALLOWED_IN_GRAPH, APPLIED

if TYPE_CHECKING:
    from stoker.autograd.trace import Trace


def run_captured(captured: GraphModule, inputs: Sequence[Any], trace: Trace) -> tuple[Any, ...]:
    """The captured program's outputs, as the trace's fake tensors. Where it fails, modes and scopes are as they were found."""
    found = FoundModes.now()
    try:
        return _run_each(captured, inputs, trace)
    except BaseException:  # it is raised again, whatever it is
        found.put_back()
        raise


def _run_each(captured: GraphModule, inputs: Sequence[Any], trace: Trace) -> tuple[Any, ...]:
    given = iter(inputs)
    values: dict[Any, Any] = {}
    if any(hasattr(node.target, APPLIED) or id(node.target) in ALLOWED_IN_GRAPH for node in captured.graph.nodes):
        trace.known = []
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
            continue
        args = map_arg(node.args, values.__getitem__)
        kwargs = map_arg(node.kwargs, values.__getitem__)
        if node.op == "output":
            outputs = args[0]
            return tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)
        recompute = {mark: node.meta[mark] for mark in ("recompute", "ac_graph_id") if mark in node.meta}
        trace.places.enter(node.meta.get("location", node.stack_trace), recompute)
        trace.from_numbers = node.target in (torch.tensor, torch.as_tensor) and _is_numbers(node.args[:1])
        values[node] = _run_checked(captured, node, args, kwargs)
        if node.op == "get_attr":
            trace.knows(values[node])
    return ()


def _is_numbers(value: Any) -> bool:
    """Plain numbers, in lists or alone?"""
    if isinstance(value, (list, tuple)):
        return all(map(_is_numbers, value))
    return isinstance(value, (bool, int, float, complex))


_NO_DATA = "its data is not allocated yet"
"""In the message of torch's composite operators that read a tensor's memory without asking the dispatcher."""


def _run_checked(captured: GraphModule, node: Any, args: Any, kwargs: Any) -> Any:
    try:
        return _run(captured, node, args, kwargs)
    except RuntimeError as error:
        if _NO_DATA in str(error):
            raise data_dependent(str(node.target)) from error
        if is_refused_write(error):
            raise CannotTrace(f"autograd refuses a write: {error}") from error
        raise


def _run(captured: GraphModule, node: Any, args: Any, kwargs: Any) -> Any:
    match node.op:
        case "call_function":
            return quietly(whole(node.target, args, kwargs) or node.target, args, kwargs)
        case "call_method":
            return quietly(getattr(args[0], node.target), args[1:], kwargs)
        case "get_attr":
            return _attribute(captured, node.target)
    return captured.get_submodule(node.target)(*args, **kwargs)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    if isinstance(module, torch.Tensor) and module.requires_grad:
        raise ValueError(f"the captured graph holds {path} as an attribute; what requires a gradient must be an input")
    return module
