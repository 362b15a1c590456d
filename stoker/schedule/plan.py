"""The plan: what to do on each call, as data.

In:  a lowered program, grouped.
Out: an immutable `Plan`: kernels, and steps that allocate, call kernels and library operators, and free. From it come the
     executor's program, the Python host program, and the cache entry.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from stoker.loop.node import Extern, Program, SymbolSource, reads, tensors_in
from stoker.loop.target import Targets
from stoker.loop.text import argument_text
from stoker.loop.view import Stored
from stoker.schedule.alike import Kernels
from stoker.schedule.batch import fold, gather, partners
from stoker.schedule.draft import Draft
from stoker.schedule.epilogue import Choose, join_products
from stoker.schedule.factor import multiplies
from stoker.schedule.kernel import Kernel, kernel_text
from stoker.schedule.memory import Arena, made_by_library, place
from stoker.schedule.order import order
from stoker.schedule.prologue import join_prologues
from stoker.schedule.score import Groups, estimate_bytes, group, join_strangers
from stoker.schedule.step import Batch, Library, Run, Step, step_text
from stoker.schedule.vet import vet
from stoker.shape.expr import Symbol

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a call does. Inputs in order; None marks a number."""

    inputs: tuple[str | None, ...]
    constants: tuple[tuple[str, torch.Tensor], ...]
    symbols: tuple[tuple[Symbol, SymbolSource], ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    arenas: tuple[Arena, ...]
    origins: tuple[tuple[str, ...], ...] = ()
    """For each kernel, the operators it stands for."""
    refusals: tuple[tuple[str, str, str], ...] = ()
    """Kernels that were not joined: the operators of both, and why."""
    over: tuple[tuple[str, str], ...] = ()
    """Results that were written over buffers, and these: both are one buffer in the steps."""
    order: tuple[str, int, int] = ("program", 0, 0)
    """The order chosen, the bytes it is estimated to need at its peak, and those of the program's own order."""
    takes_list: bool = False
    """Are the inputs given in one list, which the plan empties, so that it alone holds them?"""
    aligned: tuple[int, ...] = ()
    """Inputs, by their numbers, that must begin at a multiple of 16 bytes: on others the plan does not do what eager does."""


def make_plan(program: Program, targets: Targets, *, owns_inputs: bool = False, choose: Choose | None = None) -> Plan:
    """Group, order, and write down the steps. A plan that owns its inputs frees each after its last use."""
    groups = group(program, targets)
    built = Kernels(program.layouts, targets)
    join_strangers(groups, _with_company(program, groups, built))
    inputs = {n for n in program.inputs if n}
    outputs = {t.buffer for t in tensors_in(program.outputs)}
    owned = frozenset(inputs - outputs) if owns_inputs else frozenset()
    homes = program.homes
    ordered = order(groups, outputs | made_by_library(program.nodes), owned, homes)
    wanted = _needed_later(program, groups)
    steps: list[Step] = []
    kernels: dict[Kernel, int] = {}
    origins: list[tuple[str, ...]] = []
    for item in ordered.items:
        if isinstance(item, Extern):
            steps.append(_library(item, program))
            continue
        call = built.build(item, frozenset(item.writes & wanted[item]))
        if not call.kernel.phases:
            continue  # what it would write is not needed: an empty tensor is made of it
        if call.kernel not in kernels:
            kernels[call.kernel] = len(kernels)
            origins.append(call.origins)
        steps.append(Run(kernels[call.kernel], call.buffers, call.sizes))
    outside = inputs | set(program.constants)
    called = list(kernels)
    steps = vet(steps, called, homes)
    origins += [("check of indices",)] * (len(called) - len(kernels))
    plain = len(called)
    ours = functools.partial(_is_ours, targets=targets)
    if choose is not None:
        steps = join_products(steps, called, program.layouts, outputs, choose, multiplies, ours)
        steps = join_prologues(steps, called, program.layouts, outputs, choose)
    else:
        steps = join_products(steps, called, program.layouts, outputs, lambda _: True, ours, ours)
    origins += [("a matrix product",)] * (len(called) - plain)
    steps = gather(steps, called, program.layouts, targets, outside - owned, homes)
    placed = place(steps, called, program.layouts, targets, outside, outputs, owned, homes)
    over = dict(placed.over)
    called = list(placed.kernels)
    folded, sources = fold(placed.steps, called, targets, placed.arenas)
    origins += [origins[sources[number]] for number in range(len(origins), len(called))]
    used = sorted({step.kernel for step in folded if isinstance(step, (Run, Batch))})
    return Plan(
        tuple(program.inputs), tuple(program.constants.items()), tuple(program.symbols.items()),
        tuple(called[number] for number in used),
        tuple(replace(s, kernel=used.index(s.kernel)) if isinstance(s, (Run, Batch)) else s for s in folded),
        tuple(_at_home(value, over, program, homes) for value in program.outputs),
        placed.arenas, tuple(origins[number] for number in used), _refusals(groups), placed.over,
        (ordered.name, ordered.peak_bytes, ordered.program_peak_bytes),
        owns_inputs and sum(estimate_bytes(program, name) for name in owned) >= WORTH_FREEING_BYTES,
        tuple(number for number, name in enumerate(program.inputs) if name in program.aligned),
    )  # fmt: skip


def _is_ours(library: Library, targets: Targets) -> bool:
    """Is it a convolution that kernels of the target are faster at than the library?"""
    if library.operator is not aten.convolution.default:
        return False
    image, weight, *_, groups = library.arguments
    return targets[image.device.type].convolves(image.dtype, weight.sizes, groups)


def first_write(plan: Plan) -> int:
    """The first step that writes to an input; the number of steps where none does. A call that fails earlier can be made again."""
    inputs = {name for name in plan.inputs if name is not None}
    for position, step in enumerate(plan.steps):
        if isinstance(step, (Run, Batch)):
            rows = [step.buffers] if isinstance(step, Run) else [row.buffers for row in step.rows]
            if any(row[argument] in inputs for row in rows for argument in plan.kernels[step.kernel].written):
                return position
    return len(plan.steps)


def _with_company(program: Program, groups: Groups, built: Kernels) -> frozenset[int]:
    """The groups whose kernels will be rows of batches."""
    targets = built.targets
    if not any(target.batches for target in targets.values()):
        return frozenset()
    wanted = _needed_later(program, groups)
    calls = {
        number: built.build(item, frozenset(item.writes & wanted[item]))
        for number, item in groups.drafts.items()
        if isinstance(item, Draft) and targets[item.device.type].batches and not item.inner
    }
    return partners(calls, groups.order, targets)


def _at_home(value: Any, over: Mapping[str, str], program: Program, homes: Mapping[str, str]) -> Any:
    """An output, in the input that it was written over if there is one."""
    if not isinstance(value, Stored) or over.get(value.buffer) is None or over[value.buffer] != homes.get(value.buffer):
        return value
    home = over[value.buffer]
    return replace(value, buffer=home, strides=program.layouts[home].strides)


WORTH_FREEING_BYTES = 1 << 20
"""Inputs below this are held until the call ends: a list costs more than they do."""


def _refusals(groups: Groups) -> tuple[tuple[str, str, str], ...]:
    found: dict[tuple[str, str, str], None] = {}
    for (a, b), refusal in groups.refusals.items():
        first, second = (", ".join(groups.drafts[g].origins) for g in (a, b))  # type: ignore[union-attr]  # only drafts are refused
        found[first, second, refusal.value] = None
    return tuple(found)


def _library(node: Extern, program: Program) -> Library:
    layouts = tuple(None if name is None else program.layouts[name] for name in node.writes)
    return Library(
        node.operator, node.arguments, tuple(node.keywords.items()), node.writes, layouts, node.several, node.aliases
    )


def _needed_later(program: Program, groups: Groups) -> dict[Draft | Extern, set[str]]:
    """For each group, the buffers that someone else reads."""
    outputs = {t.buffer for t in tensors_in(program.outputs)}
    readers: dict[str, set[int]] = {}
    for position, node in enumerate(program.nodes):
        for name in reads(node):
            readers.setdefault(name, set()).add(groups.group_of[position])
    needed: dict[Draft | Extern, set[str]] = {}
    for number, item in groups.drafts.items():
        if isinstance(item, Draft):
            needed[item] = {w for w in item.writes if w in outputs or readers.get(w, set()) - {number}}
    return needed


def plan_text(plan: Plan) -> str:
    """The plan for people and golden tests."""
    lines = []
    for number, kernel in enumerate(plan.kernels):
        lines.append(f"kernel {number}: {kernel_text(kernel)}")
    for step in plan.steps:
        lines.append(step_text(step))
    for arena in plan.arenas:
        lines += [f"{name} lies at byte {offset} of the arena" for name, offset, _ in arena.offsets]
    lines += [f"{result} was written over {below}" for result, below in plan.over]
    lines.append("return " + ", ".join(argument_text(o) for o in plan.outputs))
    return "\n".join(lines)
