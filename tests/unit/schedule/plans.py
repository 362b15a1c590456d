"""Plans of small programs, and what must hold of any plan's memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from stoker.autograd import aot
from stoker.codegen.cpp.target import CPU
from stoker.loop.index import Dimensions
from stoker.loop.instruction import Load, Store
from stoker.loop.node import Program, tensors_in
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.schedule.kernel import Kernel
from stoker.schedule.plan import Plan, make_plan
from stoker.schedule.step import Library, Run
from stoker.shape.walk import evaluate

TARGETS = {"cpu": CPU}


def lowered(program: Callable[..., Any], inputs: Sequence[Any]) -> Program:
    """The loops of a program that returns a tuple."""
    found: list[Program] = []

    def keep(module: Any, fakes: Any) -> Any:
        found.append(lower_graph(module, TARGETS))
        return module.forward

    aot(torch.fx.symbolic_trace(program), inputs, forward_compiler=keep, decompositions=decompositions())
    return found[0]


def planned(program: Callable[..., Any], *inputs: Any) -> Plan:
    return make_plan(lowered(program, inputs), TARGETS)


def assert_memory_sound(plan: Plan) -> None:
    """Buffers of the arena that are alive together do not overlap; shared arguments are read before they are written."""
    uses: dict[str, list[int]] = {}
    for position, step in enumerate(plan.steps):
        for name in _used(step):
            uses.setdefault(name, []).append(position)
    spans = {
        name: (evaluate(offset, {}), evaluate(offset + layout.reach * layout.dtype.itemsize, {}))
        for arena in plan.arenas
        for name, offset, layout in arena.offsets
    }
    for (a, (start, end)), (b, (other, other_end)) in itertools.combinations(spans.items(), 2):
        apart = end <= other or other_end <= start
        assert apart or uses[a][-1] < uses[b][0] or uses[b][-1] < uses[a][0], (a, b)
    fixed = {n for n in plan.inputs if n} | {n for n, _ in plan.constants}
    for step in plan.steps:
        if not isinstance(step, Run):
            continue
        kernel = plan.kernels[step.kernel]
        assert not fixed & {step.buffers[n] for n in kernel.written}
        for x, y in itertools.combinations(range(len(step.buffers)), 2):
            if step.buffers[x] == step.buffers[y]:
                assert {x, y} <= kernel.shared
                assert_read_before_written(kernel, (x, y))


def _used(step: Any) -> list[str]:
    match step:
        case Run():
            return list(step.buffers)
        case Library():
            tensors = tensors_in((step.arguments, [v for _, v in step.keywords]))
            return [t.buffer for t in tensors] + [r for r in step.results if r is not None]
    return []


Event = tuple[int, int, int, int]
"""An access: outer point, phase, inner point, line."""


def assert_read_before_written(kernel: Kernel, pair: tuple[int, int]) -> None:
    """By visiting every point of the loops: an element is read by the outer point that writes over it, and before it does.

    Phases follow each other; inner points of one phase may come in any order. What was written may be read again.
    """
    (source,), (target,) = ([f"a{n}" for n in pair if (n in kernel.written) is written] for written in (False, True))
    reads: dict[int, list[Event]] = {}
    writes: dict[int, list[Event]] = {}
    for outer_number, outer in enumerate(_points(kernel.outer)):
        for phase_number, phase in enumerate(kernel.phases):
            inner_points = list(_points(kernel.inner)) if phase.across else [{}]
            for inner_number, inner in enumerate(inner_points):
                for line_number, (_, i) in enumerate(phase.lines):
                    if (isinstance(i, Load) and i.buffer == source) or (isinstance(i, Store) and i.buffer == target):
                        place = evaluate(i.index, {**outer, **inner})
                        event = (outer_number, phase_number, inner_number, line_number)
                        (reads if isinstance(i, Load) else writes).setdefault(place, []).append(event)
    for place, found in writes.items():
        assert len(found) == 1, f"element {place} is written twice"
        ((outer, phase, inner, line),) = found
        for read_outer, read_phase, read_inner, read_line in reads.get(place, ()):
            before = read_phase < phase or (read_phase == phase and read_inner == inner and read_line < line)
            assert read_outer == outer, f"element {place} is read by another outer point"
            assert before, f"element {place} is read after it was written"


def _points(dimensions: Dimensions) -> Iterator[dict[Any, int]]:
    ranges = [range(evaluate(d.size, {})) for d in dimensions]
    for values in itertools.product(*ranges):
        yield {d.symbol: v for d, v in zip(dimensions, values)}
