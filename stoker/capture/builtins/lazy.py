"""Lazy modules of torch.nn: the first call gives their parameters a shape.

That happens once, to the module itself, as the program would have it; then capture begins anew, with a module like others. Only sizes
of the arguments are looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph

from stoker import torch_private
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.subgraph import Seen
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue, pairs_of
from stoker.capture.values.module import ModuleValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import BeginAnew, Break
from stoker.graph.walk import draws

NONE = Constant(None)


@handles(torch_private.infer_parameters)
def infer_parameters(m: Machine, owner: Value, module: Value, args: Value, kwargs: Value = NONE) -> Value:
    if not isinstance(module, ModuleValue) or module.real is None or type(module.real) is not module.cls:
        raise Break("a lazy module", "it was made by the captured code, or is compiled itself", "call it once before")
    if m.effects.first or _has_drawn(m):
        raise Break(
            "a lazy module",
            "a generator is seeded, or drawn from, before its parameters are made",
            "call it once before",
        )
    named = {} if isinstance(kwargs, Constant) else {k.constant(): _like(m, v) for k, v in pairs_of(m, kwargs)}
    given = tuple(_like(m, value) for value in args.items_list(m))
    m.concrete.run(torch_private.infer_parameters, module.real, module.real, given, named)
    raise BeginAnew


def _like(m: Machine, value: Value) -> Any:
    """An argument for what looks at sizes alone."""
    value = m.wrap.force(value)
    if isinstance(value, TensorValue):
        return torch.empty([int(s) for s in value.fake.shape], dtype=value.fake.dtype, device="meta")
    if isinstance(value, DictValue) and value.cls is dict:
        return {key.constant(): _like(m, part) for key, part in value.pairs(m)}
    if isinstance(value, (ListValue, TupleValue)):
        parts = [_like(m, part) for part in value.elements(m)]
        return parts if isinstance(value, ListValue) else getattr(value.cls, "_make", value.cls)(parts)
    return m.concrete.plain(value, "an argument of a lazy module")


def _has_drawn(m: Machine) -> bool:
    """Does what was captured so far draw random numbers?"""
    graph, seen = Graph(), Seen()
    graph.graph_copy(m.record.graph, {})
    graph.output(None)
    with m.record.fake_mode, seen, torch.no_grad():
        inputs = [n.meta["example_value"] for n in m.record.graph.nodes if n.op == "placeholder"]
        torch_private.graph_module(torch.nn.Module(), graph)(*inputs)
    return any(draws(operator) for operator in seen.operators)
