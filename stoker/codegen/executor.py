"""The plan as the C++ executor reads it.

In:  a plan, its buffers' layouts, and its kernels as built.
Out: a `PlanRecord` with the objects that it names by their place, and the callable that `_C.Plan` makes of them.

Requirements, held by tests/stages: the executor does what stoker/codegen/host.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from stoker import _C
from stoker.codegen import launch
from stoker.codegen import plan_records as record
from stoker.codegen.backend import Built, Launch, LaunchBatch
from stoker.codegen.encoding import Encoding
from stoker.codegen.launch import sizes_of
from stoker.codegen.library_call import library_call
from stoker.codegen.numbers import TooLarge
from stoker.loop.index import count
from stoker.loop.instruction import Index
from stoker.loop.layout import Layout
from stoker.loop.view import Stored
from stoker.runtime.device import index_flags
from stoker.schedule.memory import Arena
from stoker.schedule.plan import Plan, first_write
from stoker.schedule.step import Allocate, Batch, Free, Library, Run, Step
from stoker.shape.expr import Expr
from stoker.shape.walk import free_symbols, substitute


def executor(
    plan: Plan, layouts: dict[str, Layout], kernels: Sequence[Built], otherwise: Callable[..., object] | None = None
) -> _C.Plan:
    """A callable that runs without Python: of the plan's inputs, or of a list of them if its `_boxed_call` is true.

    `otherwise`, of the inputs, is called where a size or number, which the plan computes with 64 bits, does not fit, is too large for
    kernels that compute with 32, or where an input that must be aligned is not.
    """
    encoded, objects = encode(plan, layouts, kernels)
    return _C.Plan(record.plain(encoded), objects, otherwise if plan.symbols or plan.aligned else None)


def encode(
    plan: Plan, layouts: dict[str, Layout], kernels: Sequence[Built]
) -> tuple[record.PlanRecord, tuple[object, ...]]:
    """The record of a plan, and the objects beside it."""
    coding = Encoding(plan, layouts, kernels)
    symbols = tuple(
        record.SymbolRead(coding.numbers.symbol(name), s.argument, s.dimension, s.stride) for name, s in plan.symbols
    )
    inputs = tuple(None if name is None else coding.slot(name) for name in plan.inputs)
    for name, value in plan.constants:
        coding.constant(value.detach(), coding.slot(name))
    arenas = tuple(_arena(coding, arena) for arena in plan.arenas)
    parts = [_steps(coding, step) for step in plan.steps]
    outputs = tuple(_output(coding, value) for value in plan.outputs)
    _count_in_kernels(coding)
    narrow = _narrow(coding)  # before the numbers are written down
    watched = any(isinstance(b.launchable, Launch) and b.launchable.watches for b in kernels)
    flags = record.IndexFlags(coding.hold(index_flags().data_ptr())) if watched else None
    encoded = record.PlanRecord(
        len(coding.slots), inputs, tuple(coding.constants), tuple(coding.numbers.values), symbols, tuple(coding.numbers.steps), arenas,
        tuple(step for part in parts for step in part), outputs, plan.takes_list, _device(plan, kernels), flags, plan.aligned, narrow,
        sum(map(len, parts[: first_write(plan)])),
    )  # fmt: skip
    return encoded, tuple(coding.objects)


def _arena(coding: Encoding, arena: Arena) -> record.ArenaRecord:
    places = tuple(record.ArenaPlace(coding.slot(name), coding.numbers.of(offset)) for name, offset, _ in arena.offsets)
    return record.ArenaRecord(record.Device(str(arena.device)), coding.numbers.of(arena.size_bytes), places)


def _device(plan: Plan, kernels: Sequence[Built]) -> int | None:
    """The device that kernels are launched on."""
    launched = (Launch, LaunchBatch)
    found = {k.device.index or 0 for k, b in zip(plan.kernels, kernels) if isinstance(b.launchable, launched)}
    if len(found) > 1:
        raise TooLarge("kernels of one graph are on several devices")
    return found.pop() if found else None


def _count_in_kernels(coding: Encoding) -> None:
    """Numbers that kernels compute from sizes: computed here as well, because the executor notices if one does not fit."""
    for step in coding.plan.steps:
        if not isinstance(step, Run) or not step.sizes:
            continue
        known = sizes_of(step)
        for phase in coding.plan.kernels[step.kernel].phases:
            for _, i in phase.lines:
                if isinstance(i, Index) and free_symbols(i.expr) <= known.keys():
                    coding.numbers.of(substitute(i.expr, known))


def _narrow(coding: Encoding) -> tuple[record.Number, ...]:
    """What kernels that compute in 32 bits must not be called on: sizes, counts and memory that are too large."""
    found: dict[record.Number, None] = {}
    for step in coding.plan.steps:
        launchable = coding.kernels[step.kernel].launchable if isinstance(step, Run) else None
        if not isinstance(step, Run) or not isinstance(launchable, Launch) or not launchable.limited:
            continue
        kernel = coding.plan.kernels[step.kernel]
        points = substitute(count((*kernel.outer, *kernel.inner)), sizes_of(step))
        reaches = (coding.layouts[name].reach for name in step.buffers)
        found |= dict.fromkeys(coding.numbers.each([*step.sizes, points, *reaches]))
    return tuple(found)


def _output(coding: Encoding, value: object) -> record.PlanOutput:
    if isinstance(value, Stored):
        view = coding.view(value)
        if any(value.buffer == name for name, _ in coding.plan.constants):
            return replace(view, whole=False)  # of its own; an input is itself, as a gradient that is passed on
        return view
    if isinstance(value, Expr):
        return coding.part(value)
    return record.ObjectOutput(record.HeldObject(coding.hold(value)))


def _steps(coding: Encoding, step: Step) -> Sequence[record.PlanStep]:
    match step:
        case Allocate():
            return [record.AllocateStep(coding.slot(step.buffer), coding.layout(step.layout))]
        case Free():
            return [record.FreeStep(coding.slot(step.buffer))]
        case Run():
            return [launch.run(coding, step)]
        case Batch():
            return launch.batch(coding, step)
        case Library():
            return [library_call(coding, step)]
    assert_never(step)
