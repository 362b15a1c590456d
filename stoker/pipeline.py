"""The stages of the back end, in order, each timed and dumpable.

    captured graph -> autograd (decompose) -> passes -> lower -> check -> schedule -> generate -> build -> execute

`compile_captured` is the back end "stoker"; `compile_graph` compiles one functional graph, forward or backward.
"""

from __future__ import annotations

import copy
import functools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import _C, log, torch_private
from stoker.autograd import aot, aot_inside
from stoker.autograd.begun import Begun, finished, unboxed
from stoker.codegen.aten import through_aten, through_aten_boxed
from stoker.codegen.backend import Backend, Building, Built, Site, begin
from stoker.codegen.executor import executor
from stoker.codegen.generators import NoGenerator, NoKernels, generators
from stoker.codegen.host import host_program
from stoker.codegen.numbers import TooLarge
from stoker.cudagraph.plans import recorded
from stoker.decompose import OURS
from stoker.defect import survive, tell
from stoker.fake import FakeTensor
from stoker.graph import nested
from stoker.graph.facts import device_of
from stoker.loop.check import check
from stoker.loop.layout import Layout
from stoker.loop.target import LOOP_DTYPES
from stoker.lower.driver import lower_graph
from stoker.lower.extern import LIBRARY
from stoker.lower.registry import LOWERINGS, CannotLower
from stoker.options import Options
from stoker.passes.activation import join_activations
from stoker.passes.attention import INFERENCE_BYTES, TRAINING_BYTES, fuse_attention
from stoker.passes.channels_last import channels_last
from stoker.passes.cut import cut, run_pieces
from stoker.passes.decode import spread_queries
from stoker.passes.detour import straighten
from stoker.passes.floats import NeedsData, Scalars, divide_as_c, take_out
from stoker.passes.fold import fold
from stoker.passes.freeze import freeze, is_view, preparer
from stoker.passes.heads import share_heads
from stoker.passes.images import turn_images
from stoker.passes.join import JOINED, join
from stoker.passes.mask import settle_masks
from stoker.passes.pack import PACKS, pack
from stoker.passes.patches import multiply_patches
from stoker.passes.place import place
from stoker.passes.precompute import precompute
from stoker.passes.recordable import draws_numbers, obstacle
from stoker.passes.seeds import settle_seeds
from stoker.passes.simplify import simplify
from stoker.passes.strided import read_in_place
from stoker.passes.window import attend_in_windows
from stoker.runtime.build import NoCompiler
from stoker.runtime.tune import choose_activation, choose_join, choose_linear, give_back
from stoker.schedule.plan import Plan, make_plan
from stoker.schedule.step import Batch, Run
from stoker.schedule.summary import Summary
from stoker.strict import strict
from stoker.took import timed

Compiled = Callable[..., tuple[Any, ...]]
DETOUR = "a detour over the processor"


@dataclass(slots=True)
class Record:
    """What one compilation made, stage by stage."""

    products: dict[str, Any] = field(default_factory=dict)


def compile_captured(graph_module: GraphModule, example_inputs: list[Any], options: Options | None = None) -> Compiled:
    """The default back end: autograd ahead of time, then loops."""
    options = options or Options()
    forward: Any = functools.partial(begin_graph, options=options)
    backward = functools.partial(_compile_backward, options=options)
    if not torch.is_grad_enabled():
        weights = frozenset(n.name for n in graph_module.graph.nodes if n.meta.get("is_weight"))
        forward = functools.partial(_compile_inference, weights=weights, options=options)
    fused = fuse_attention(graph_module, TRAINING_BYTES if torch.is_grad_enabled() else INFERENCE_BYTES)
    if fused is not graph_module:
        _tell(graph_module, {"attention is one operator": len(graph_module.graph.nodes) - len(fused.graph.nodes)})
    fused = share_heads(settle_masks(fused))
    with timed("autograd"):
        return aot(
            fused,
            example_inputs,
            forward_compiler=forward,
            backward_compiler=backward,
            decompositions=decompositions(),
            memory_budget=options.memory_budget,
            captured=graph_module.forward,
            change=turn_images,
        )


def decompositions() -> Any:
    """The decompositions this back end takes: ours, but for operators whose lowering or library kernel is better.

    What is in no table of ours is a library call, which is exact; torch's long tail of decompositions is not needed.
    """
    better = LIBRARY | LOWERINGS.keys()
    return {operator: function for operator, function in OURS.items() if operator not in better}


def _compile_backward(module: GraphModule, fakes: list[Any], *, options: Options) -> Begun:
    divide_as_c(module)
    return begin_graph(module, fakes, owns_inputs=True, options=options)


def _compile_inference(
    module: GraphModule, fakes: list[Any], *, weights: frozenset[str], options: Options
) -> Compiled | Begun:
    """Compile an inference graph. What weights alone determine, and is worth it, is kept between calls."""
    begin_rest = functools.partial(begin_graph, inference=True, options=options)
    compile_rest = lambda rest: unboxed(finished(begin_rest(rest, fakes)))  # noqa: E731
    with timed("passes"):
        improve(module, by_value=not _is_recorded(module, options))
        whole = copy.deepcopy(module.graph)
        if options.freezing:
            _tell(module, {"it is part of a convolution": fold(module, weights)})
            channels_last(module, weights)
    if options.packing:
        with timed("packing of weights"):
            _tell(module, {"linear layers of one input are one": join(module, weights, choose_join)})
            pack(module, weights, functools.partial(choose_linear, thorough=options.autotune))
            give_back()
    if not options.autotune:  # which measures kernels that compute product and function
        with timed("functions behind products"):
            _tell(module, {"the library computes it with a product": join_activations(module, _is_faster_as_one)})
    worth = (lambda node: not is_view(node)) if options.freezing else (lambda n: n.target in PACKS or JOINED in n.meta)
    frozen = freeze(module, weights, worth)
    if frozen is None:
        return begin_rest(module, fakes)
    return _C.FrozenCall(
        compile_rest(frozen.rest),
        preparer(frozen),
        frozen.watched,
        lambda: survive(
            "a graph runs operator by operator, not compiled",
            torch_private.graph_module(module, whole),
            compile_rest,
            through_aten,
        ),
    )


def _is_faster_as_one(product: Node, function: str) -> bool:
    x, weight = (n.meta["val"].meta for n in product.args[1:])  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
    sizes = (x.sizes[0], weight.sizes[1], x.sizes[1])
    return choose_activation(sizes, x.dtype, weight.strides[0] == 1, function)


def improve(module: GraphModule, *, by_value: bool = True) -> None:
    """The passes for every graph, in place; an event says what they did. A recording holds the values that kernels were launched with:
    what is recorded takes none."""
    kept_out = 0 if by_value else _kept_out(module)
    held = simplify(module.graph)
    place(module.graph, LOWERINGS, LOOP_DTYPES if by_value else ())
    if count := precompute(module):
        held["it depends on no input"] = count
    _tell(module, held)
    if not by_value:
        _tell(module, {DETOUR: kept_out - _kept_out(module)})


def _kept_out(module: GraphModule) -> int:
    """Operators of a graph that cannot be recorded."""
    return sum(obstacle(node) is not None for node in module.graph.nodes)


def _tell(module: GraphModule, gone: Mapping[str, int]) -> None:
    """An event that says how many operators a pass has taken out of a graph, and why."""
    if (total := sum(gone.values())) > 0:
        words = ", ".join(f"{reason} ({count})" for reason, count in gone.items() if count)
        log.record(log.Event("improved", f"{total} operators are gone", _location(module), words, dict(gone)))


def _location(module: GraphModule) -> str:
    return str(module.meta.get("location", "?"))


def compile_graph(
    graph_module: GraphModule, fake_inputs: list[Any], record: Record | None = None, **how: Any
) -> Compiled:
    """Compile a functional ATen graph: `begin_graph`, whose arguments it takes, and wait."""
    return begin_graph(graph_module, fake_inputs, record, **how).finish()


def begin_graph(
    graph_module: GraphModule,
    fake_inputs: list[Any],
    record: Record | None = None,
    *,
    inference: bool = False,
    owns_inputs: bool = False,
    options: Options | None = None,
) -> Begun:
    """Compile a functional ATen graph, but for its kernels, which are being built. One that cannot be compiled runs operator by operator,
    and an event says why.

    One that owns its inputs may ask for them in a list (its attribute `_boxed_call` is true then), to free each in time.
    """
    record = record or Record()
    options = options or Options()
    compile_nested(graph_module, options)
    apart = _made_recordable(graph_module) if _is_recorded(graph_module, options) else frozenset[Node]()
    if (pieces := cut(graph_module, apart.__contains__)) is not None:
        again = functools.partial(begin_graph, inference=inference, options=options)
        begun = [through_aten(p.graph) if p.hosted else again(p.graph, []) for p in pieces]
        return Begun(lambda: run_pieces(graph_module, pieces, [unboxed(finished(b)) for b in begun]))
    how = functools.partial(_begun, record=record, options=options, inference=inference, owns_inputs=owns_inputs)
    try:
        scalars = take_out(graph_module, by_value=not _is_recorded(graph_module, options))
        building = how(graph_module) if scalars is None else how(scalars.graph, scalars=scalars)
    except NOT_COMPILED as reason:
        return Begun(functools.partial(_through_aten, graph_module, reason))

    def finish() -> Compiled:
        try:
            return building.finish() if scalars is None else scalars.around(building.finish())
        except NOT_COMPILED as reason:
            return _through_aten(graph_module, reason)

    if options.autotune or devices_of(graph_module) != ["cpu"]:
        return Begun(finish)
    return Begun(
        finish,
        can_wait=True,
        deadline=graph_module.meta.get("began", time.perf_counter()) + options.patience,
        built_by=building.built_by,
        operators=lambda: through_aten_boxed(graph_module),
        tell=functools.partial(tell, "a graph runs operator by operator, not compiled", graph_module, options=options),
        location=_location(graph_module),
    )


NOT_COMPILED = (CannotLower, NeedsData, NoCompiler, NoGenerator, NoKernels, TooLarge)
"""Why a graph runs operator by operator."""


def _through_aten(graph_module: GraphModule, reason: Exception) -> Compiled:
    words = ("backend", "a graph runs through ATen", _location(graph_module), str(reason))
    if isinstance(reason, (NoCompiler, NoGenerator)):  # the user can do something about it
        log.record(log.Event(*words), level=logging.WARNING, once=("backend", str(reason)))
    else:
        log.record(log.Event(*words))
    return through_aten(graph_module)


def compile_nested(module: GraphModule, options: Options) -> None:
    """Compile the graphs inside a graph's operators: branches, and the bodies of loops."""
    for node in module.graph.nodes:
        if node.target in nested.OPERATORS:
            given = torch.fx.node.map_arg(node.args, lambda n: n.meta["val"])
            for inside, inputs in zip(given[-1].graphs, nested.inputs_of(node.target, given)):
                if inside.compiled is None:
                    inside.compiled = _compile_inside(nested.as_graph(inside, inputs), inputs, options)


def _compile_inside(module: GraphModule, inputs: list[Any], options: Options) -> Compiled:
    """Its kernels are waited for: C++ runs it step by step (csrc/control.cpp), and asks no more whether they are there."""
    return aot_inside(module, inputs, functools.partial(compile_graph, options=options), decompositions())


def _begun(
    graph_module: GraphModule,
    record: Record,
    options: Options,
    *,
    inference: bool,
    owns_inputs: bool,
    scalars: Scalars | None = None,
) -> Begun:
    """Everything up to the plan; to finish is to wait for its kernels."""
    backends = generators(devices_of(graph_module))
    targets = {device: backend.target for device, backend in backends.items()}
    for backend in backends.values():
        backend.start()
    records = _is_recorded(graph_module, options)
    with timed("passes"):
        if "cuda" in backends:
            _tell(graph_module, _suit_gpu(graph_module.graph, targets["cuda"].processors, inference=inference))
        improve(graph_module, by_value=not records)
    with timed("lower"):
        program = lower_graph(graph_module, targets, inference=inference, wide=options.precision == "fused")
        record.products["program"] = program
    if strict():
        check(program)
    with timed("schedule"):
        records = records and devices_of(graph_module) == ["cuda"]
        plan = record.products["plan"] = make_plan(
            program,
            targets,
            owns_inputs=owns_inputs and not records,
            choose=(lambda c: backends[c.kernel.device.type].choose_product(c, program.layouts))
            if options.autotune
            else None,
        )
    with timed("build"):
        building = begin_kernels(plan, program.layouts, backends, tune=options.autotune)

    def finish() -> Compiled:
        with timed("build"):
            kernels = record.products["kernels"] = building.wait()
        made = Summary.of(plan, program.declined)
        log.record(log.Event("compiled", made.headline, _location(graph_module), data=made))
        record.products["host"] = host_program(plan, [k.call for k in kernels])
        with timed("encode"):
            otherwise = lambda *inputs: through_aten(graph_module)(*inputs)  # noqa: E731  (rarely needed: made when it is)
            if scalars is not None:
                otherwise = scalars.numbers(otherwise, len(plan.inputs))
            call = executor(plan, program.layouts, kernels, otherwise)
        if not records:
            return call
        on_defect = functools.partial(tell, "a graph is not recorded", graph_module, options=options)
        draws = any(map(draws_numbers, graph_module.graph.nodes))
        return recorded(call, plan, _cuda_device(graph_module), _location(graph_module), on_defect, draws=draws)

    return Begun(finish, built_by=building.built_by)


def _suit_gpu(graph: Graph, processors: int, *, inference: bool) -> dict[str, int]:
    """Other forms of operators, which a GPU computes faster, in place; how many of each."""
    changed = {"patches side by side are rows of a product": multiply_patches(graph)}
    if inference:
        changed["a copy before an attention kernel"] = read_in_place(graph)
        changed["attention of few queries is loops"] = spread_queries(graph, processors)
        changed["attention in windows has a kernel of its own"] = attend_in_windows(graph)
    return changed


def _is_recorded(module: GraphModule, options: Options) -> bool:
    """Is a graph to be recorded: was it asked for, and is it on one CUDA device, maybe with parts on the processor?"""
    if not options.cudagraphs:
        return False
    found = {d for node in module.graph.nodes if (d := device_of(node)) is not None and d.type == "cuda"}
    return len(found) == 1


def _cuda_device(module: GraphModule) -> int:
    (found,) = {d.index or 0 for n in module.graph.nodes if (d := device_of(n)) is not None and d.type == "cuda"}
    return found


def _made_recordable(module: GraphModule) -> frozenset[Node]:
    """Take detours out of a graph, in place; the operators that stay out of recordings, each told with its reason."""
    settle_seeds(module.graph)
    improve(module, by_value=False)
    _tell(module, {DETOUR: straighten(module.graph)})
    found = {node: why for node in module.graph.nodes if (why := obstacle(node)) is not None}
    for node, why in found.items():
        log.record(log.Event("cudagraph", f"{node.target} is not recorded", _location(module), why))
    return frozenset(found)


def devices_of(module: GraphModule) -> list[str]:
    """The types of devices that a graph's tensors are on."""
    values = (node.meta.get("val") for node in module.graph.nodes)
    return list(dict.fromkeys(v.meta.device.type for v in values if isinstance(v, FakeTensor)))


def build_kernels(plan: Plan, layouts: Mapping[str, Layout], backends: Mapping[str, Backend]) -> list[Built]:
    """The kernels of a plan, built."""
    return begin_kernels(plan, layouts, backends).wait()


def begin_kernels(
    plan: Plan, layouts: Mapping[str, Layout], backends: Mapping[str, Backend], *, tune: bool = False
) -> Building:
    """The kernels of a plan, being built, each by the code generator of its device."""
    first = {step.kernel: step.buffers for step in reversed(plan.steps) if isinstance(step, Run)}
    first |= {step.kernel: step.rows[0].buffers for step in plan.steps if isinstance(step, Batch)}
    begun: list[tuple[list[int], Building]] = []
    for device, backend in backends.items():
        numbers = [n for n, kernel in enumerate(plan.kernels) if kernel.device.type == device]
        sites = [Site(tuple(layouts[b] for b in first[n]), plan.origins[n]) for n in numbers]
        begun.append((numbers, begin(backend, [plan.kernels[n] for n in numbers], sites, tune=tune)))

    def wait() -> list[Built]:
        found: dict[int, Built] = {}
        for numbers, building in begun:
            found |= zip(numbers, building.wait())
        return [found[n] for n in range(len(plan.kernels))]

    return Building(wait, lambda moment: all(building.built_by(moment) for _, building in begun))
