"""From a captured graph to a function that trains: trace, cut, compile both halves, wrap.

In:  a captured graph module, its example inputs, and compilers `(graph module, fake inputs) -> callable`.
Out: a callable with the captured program's own inputs and outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from stoker import torch_private
from stoker.autograd.functional import CannotTrace
from stoker.autograd.inputs import make_inputs
from stoker.autograd.joint import Joint, trace_joint
from stoker.autograd.keep import min_cut
from stoker.autograd.partition import Chooser, Parts, forward_only, is_random, split
from stoker.autograd.runtime import Layout, Training, guarded_call, inference_call, training_call
from stoker.autograd.trace import Decompositions
from stoker.fake import DataDependent, NoMetaRule
from stoker.log import Event, record

Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]


def aot(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    forward_compiler: Compiler,
    backward_compiler: Compiler | None = None,
    partition: str | Chooser = "min-cut",
    decompositions: Decompositions | None = None,
    memory_budget: float = 1.0,
) -> Callable[..., tuple[Any, ...]]:
    """Compile a captured program for training, or for inference when nothing in it requires a gradient."""
    grad = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        try:
            inputs = make_inputs(graph_module, example_inputs)
            joint = trace_joint(graph_module, inputs, decompositions, grad=grad)
        except (CannotTrace, DataDependent, NoMetaRule) as error:
            location = str(graph_module.meta.get("location", "?"))
            record(Event("as captured", "autograd", location, str(error)), level=logging.INFO)
            return graph_module
        if not joint.differentiable:
            module = forward_only(joint)
            call = inference_call(joint, forward_compiler(module, fake_inputs(module)))
            return guarded_call(joint, call, graph_module)
        parts = split(joint, _chooser(partition, memory_budget))
        forward = forward_compiler(parts.forward, fake_inputs(parts.forward))
        backward = (backward_compiler or forward_compiler)(parts.backward, fake_inputs(parts.backward))
    return guarded_call(joint, training_call(_training(joint, parts, forward, backward, graph_module)), graph_module)


def aot_eager(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """Run the functional graphs as they are: the proof of this layer."""
    return aot(graph_module, example_inputs, forward_compiler=run_eagerly)


def run_eagerly(module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """The compiler that compiles nothing."""
    return torch_private.write_code(module).forward


def fake_inputs(module: GraphModule) -> list[Any]:
    """What the placeholders of a graph hold."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]


def _chooser(partition: str | Chooser, memory_budget: float) -> Chooser:
    if partition == "min-cut":
        return min_cut(memory_budget)
    if isinstance(partition, str):
        raise ValueError(f"no partition is called {partition!r}; use 'min-cut', or a function from a Joint to nodes")
    return partition


def _training(joint: Joint, parts: Parts, forward: Any, backward: Any, captured: GraphModule) -> Training:
    tangents = tuple(_layout(t.meta["val"]) for t in joint.tangents if t is not None)
    silent = tuple(
        i
        for i, (r, t) in enumerate(zip(joint.results, joint.tangents))
        if t is None and isinstance(r.meta["val"], torch.Tensor)
    )
    random = any(is_random(n) for n in joint.graph.nodes)
    return Training(joint, parts, forward, backward, captured, tangents, silent, random)


def _layout(tangent: Any) -> Layout | None:
    """How a gradient must be laid out; None if its sizes are symbolic."""
    if tangent.meta.symbolic:
        return None
    return Layout(tangent.shape, tangent.stride(), tangent.dtype, tangent.device)
