"""The stages of the back end, in order, each timed and dumpable.

    captured graph -> autograd (decompose) -> passes -> lower -> check -> schedule -> generate -> build -> execute

`compile_captured` is the back end "stoker"; `compile_graph` compiles one functional graph, forward or backward.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from stoker import _C, log
from stoker.autograd import aot
from stoker.codegen.cpp.unit import kernel_name, sources_of, unit_of
from stoker.codegen.executor import executor
from stoker.codegen.host import host_program
from stoker.decompose import OURS
from stoker.loop.check import check
from stoker.lower.driver import CannotLower, lower_graph
from stoker.lower.extern import LIBRARY
from stoker.lower.registry import LOWERINGS
from stoker.options import Options
from stoker.passes.attention import fuse_attention
from stoker.passes.fold import fold
from stoker.passes.freeze import freeze, is_view, preparer
from stoker.passes.pack import PACKS, pack
from stoker.runtime.build import NoCompiler, compiler, cores, load_all
from stoker.runtime.tune import choose_linear
from stoker.schedule.plan import make_plan
from stoker.schedule.summary import Summary

Compiled = Callable[..., tuple[Any, ...]]


@dataclass(slots=True)
class Record:
    """What one compilation made, stage by stage, and how long each took in seconds."""

    products: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def compile_captured(graph_module: GraphModule, example_inputs: list[Any], options: Options | None = None) -> Compiled:
    """The default back end: autograd ahead of time, then loops."""
    options = options or Options()
    inference = not torch.is_grad_enabled()
    weights = frozenset(n.name for n in graph_module.graph.nodes if n.op == "placeholder" and n.meta.get("is_weight"))
    return aot(
        fuse_attention(graph_module) if inference else graph_module,
        example_inputs,
        forward_compiler=functools.partial(_compile_inference, names=weights, freezing=options.freezing)
        if inference
        else compile_graph,
        decompositions=decompositions(),
        memory_budget=options.memory_budget,
    )


def decompositions() -> Any:
    """The decompositions this back end takes: ours, but for operators whose lowering or library kernel is better.

    What is in no table of ours is a library call, which is exact; torch's long tail of decompositions is not needed.
    """
    return {operator: function for operator, function in OURS.items() if operator not in LIBRARY | LOWERINGS.keys()}


def _compile_inference(module: GraphModule, fakes: list[Any], *, names: frozenset[str], freezing: bool) -> Compiled:
    """Compile an inference graph. What weights alone determine, and is worth it, is kept between calls."""
    whole = copy.deepcopy(module.graph)
    if freezing:
        fold(module, names)
    pack(module, names, choose_linear)
    frozen = freeze(
        module, names, (lambda node: not is_view(node)) if freezing else (lambda node: node.target in PACKS)
    )
    if frozen is None:
        return compile_graph(module, fakes, inference=True)

    def without() -> Compiled:
        return compile_graph(GraphModule(module, whole), fakes, inference=True)

    call = compile_graph(frozen.rest, fakes, inference=True)
    return _C.FrozenCall(call, preparer(frozen), frozen.watched, without)


def compile_graph(
    graph_module: GraphModule, fake_inputs: list[Any], record: Record | None = None, *, inference: bool = False
) -> Compiled:
    """Compile a functional ATen graph. One that cannot be compiled runs operator by operator, and an event says why."""
    record = record or Record()
    try:
        return _compiled(graph_module, record, inference=inference)
    except (CannotLower, NoCompiler) as reason:
        location = str(graph_module.meta.get("location", "?"))
        log.record(log.Event("backend", "a graph runs through ATen", location, str(reason)), level=logging.WARNING)
        return graph_module.forward  # type: ignore[no-any-return]


def _compiled(graph_module: GraphModule, record: Record, *, inference: bool = False) -> Compiled:
    compiler()
    with record.stage("lower"):
        program = record.products["program"] = lower_graph(graph_module, inference=inference)
    if os.environ.get("STOKER_STRICT"):
        check(program)
    with record.stage("schedule"):
        plan = record.products["plan"] = make_plan(program)
    with record.stage("generate"):
        sources = record.products["sources"] = sources_of(plan, cores())
    with record.stage("build"):
        libraries = load_all(sources)
    location = str(graph_module.meta.get("location", "?"))
    made = Summary.of(plan, program.declined)
    log.record(log.Event("compiled", made.headline, location, data=made))
    kernels = [getattr(libraries[unit_of(n, len(sources))], kernel_name(n)) for n in range(len(plan.kernels))]
    record.products["host"] = host_program(plan, kernels)
    addresses = [ctypes.cast(kernel, ctypes.c_void_p).value or 0 for kernel in kernels]
    with record.stage("encode"):
        return executor(plan, program.layouts, addresses)  # type: ignore[no-any-return]
