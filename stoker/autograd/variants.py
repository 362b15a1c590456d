"""One compiled call for each way in which the inputs of a program overlap.

In:  a captured graph that writes to some of its inputs, and how to compile one.
Out: a callable that looks which inputs share memory with a written one, and runs what was compiled for that: the first
     time it compiles it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from stoker import _C, defect
from stoker.autograd.overlap import Pattern, merge, pattern
from stoker.autograd.refusal import CannotTrace
from stoker.fake import DataDependent, FakeTensor, NoMetaRule, Refused
from stoker.graph.numpy_operator import ON_ARRAY
from stoker.graph.undo import Undoable
from stoker.log import Event, record
from stoker.strict import strict

Call = Callable[..., tuple[Any, ...]]

NOT_TRACED = (CannotTrace, DataDependent, NoMetaRule, Refused)
"""Why a program is not compiled but runs as it was captured."""

_LIMIT = 8
"""How many ways to overlap are compiled; a program that meets more runs as captured."""


def as_captured(graph_module: GraphModule, reason: object) -> Call:
    """The program itself, and an event that says why."""
    location = str(graph_module.meta.get("location", "?"))
    record(Event("as captured", "autograd", location, str(reason)), level=logging.INFO)
    return Undoable(graph_module)


def by_overlap(
    graph_module: GraphModule,
    compile: Callable[[GraphModule, Sequence[Any]], Call],
    written: frozenset[int],
    placed: frozenset[int],
    calls: dict[Pattern, Call],
    inputs: Sequence[Any],
) -> Call:
    """The call that picks, and makes, one of `calls`. That for `inputs` is made here if there is none."""
    watched = tuple(sorted(written))
    symbolic = _takes_sizes(graph_module)
    arrays = any(n.meta.get(ON_ARRAY) for n in graph_module.graph.nodes if n.op == "placeholder")

    def make(inputs: Sequence[Any], groups: Pattern) -> Call:
        try:
            if not groups:
                return compile(graph_module, inputs)
            merged = merge(graph_module, inputs, groups)
            return merged.wrap(compile(merged.graph_module, merged.inputs(inputs)))
        except NOT_TRACED as error:
            return as_captured(graph_module, error)
        except Exception as error:
            if strict():
                raise
            defect.tell("a graph runs as it was captured, not compiled", graph_module, error)
            return Undoable(graph_module)

    def add(inputs: Sequence[Any], groups: Pattern) -> Call:
        if len(calls) > _LIMIT:
            return Undoable(graph_module)
        if len(calls) == _LIMIT:
            calls[groups] = as_captured(graph_module, f"its inputs overlap in more than {_LIMIT} ways")
        elif symbolic and calls:
            calls[groups] = as_captured(graph_module, "inputs of symbolic size overlap otherwise than when compiled")
        else:
            calls[groups] = make(inputs, groups)
        return calls[groups]

    def call(*inputs: Any) -> tuple[Any, ...]:
        may_meet = placed or arrays or _C.shares_storage(inputs, watched)
        groups = pattern(inputs, written, placed) if may_meet else ()
        chosen = calls.get(groups)
        return (add(inputs, groups) if chosen is None else chosen)(*inputs)

    if not calls:
        add(inputs, pattern(inputs, written, placed))
    return call


def _takes_sizes(graph_module: GraphModule) -> bool:
    """Are sizes symbolic? What tracing decides about them is guarded only while capture runs."""
    known = [n.meta.get("example_value") for n in graph_module.graph.nodes if n.op == "placeholder"]
    return any(isinstance(v, torch.SymInt) or isinstance(v, FakeTensor) and v.meta.symbolic for v in known)
