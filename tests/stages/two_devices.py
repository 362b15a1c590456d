"""Graphs of the processor and a CUDA device, run on the processor: kernels of the device under Triton's interpreter.

A graph traced on the processor is moved: its inputs are said to be on the device, and what is known of its nodes is found anew. When the
plan is made, all its memory is said to be on the processor again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from stoker.autograd import aot
from stoker.codegen.host import host_program
from stoker.codegen.triton.target import cuda_target
from stoker.fake import FakeMode, FakeStorage, FakeTensor
from stoker.fake.meta import meta_of
from stoker.fake.tensor import make_fake
from stoker.loop.check import check
from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.loop.view import Stored
from stoker.lower.driver import lower_graph
from stoker.nest import map_leaves
from stoker.pipeline import build_kernels, decompositions, improve
from stoker.schedule.plan import Plan, make_plan
from stoker.schedule.step import Allocate, Library, Step
from tests.stages.interpreted import PROCESSORS, Interpreted
from tests.unit.codegen.plain_generator import PlainGenerator

DEVICE, PROCESSOR = torch.device("cuda", 0), torch.device("cpu")


class OnDevice(Interpreted):
    """The target of a CUDA device, with its name."""

    @property
    def target(self) -> Target:
        return cuda_target(90, PROCESSORS)


class TwoDevices:
    """A back end for `stoker.compile`: tensors that have dimensions are on the device, others where `numbers` says."""

    def __init__(self, numbers: torch.device = PROCESSOR, *, by_value: bool = True) -> None:
        self.numbers, self.by_value = numbers, by_value
        self.plans: list[Plan] = []
        self.layouts: dict[str, Layout] = {}
        """Of the last plan's buffers."""
        self.device = OnDevice()

    def __call__(self, module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return aot(module, inputs, forward_compiler=self.compile, decompositions=decompositions())

    def compile(self, module: GraphModule, fakes: list[Any]) -> Callable[..., tuple[Any, ...]]:
        moved(module, lambda fake: DEVICE if fake.dim() else self.numbers)
        backends = {"cpu": PlainGenerator(), "cuda": self.device}
        targets = {name: backend.target for name, backend in backends.items()}
        improve(module, by_value=self.by_value)
        program = lower_graph(module, targets)
        check(program)
        plan = make_plan(program, targets)
        self.plans.append(plan)
        self.layouts = program.layouts
        built = build_kernels(plan, program.layouts, backends)  # type: ignore[arg-type]  # both are back ends
        return host_program(on_processor(plan), [b.call for b in built])


def moved(module: GraphModule, place: Callable[[FakeTensor], torch.device]) -> None:
    """Say that inputs are elsewhere, and find out what follows from it, in place."""
    mode = FakeMode()
    with mode, torch.no_grad():
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, FakeTensor):
                layout = meta_of(value.dtype, value.meta.sizes, value.meta.strides, place(value))
                node.meta["val"] = make_fake(layout, FakeStorage(mode))
            elif node.op == "call_function":
                arguments, keywords = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                node.meta["val"] = node.target(*arguments, **keywords)


def on_processor(plan: Plan) -> Plan:
    """The plan with its memory on the processor."""
    arenas = tuple(
        replace(a, device=PROCESSOR, offsets=tuple((n, o, here(layout)) for n, o, layout in a.offsets))
        for a in plan.arenas
    )
    return replace(plan, steps=tuple(map(_step, plan.steps)), arenas=arenas)


def _step(step: Step) -> Step:
    match step:
        case Allocate():
            return replace(step, layout=here(step.layout))
        case Library():
            parts = (step.arguments, step.keywords, step.layouts)
            arguments, keywords, layouts = map_leaves(here, parts)
            return replace(step, arguments=arguments, keywords=keywords, layouts=layouts)
    return step


def here(value: Any) -> Any:
    if isinstance(value, (Layout, Stored)):
        return replace(value, device=PROCESSOR)
    return PROCESSOR if isinstance(value, torch.device) else value
