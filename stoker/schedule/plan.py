"""The plan: what to do on each call, as data.

In:  a lowered program, grouped.
Out: an immutable `Plan`: kernels, and steps that allocate, call kernels and library operators, and free. From it come the
     executor's program, the Python host program, and the cache entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker.loop.layout import Layout
from stoker.loop.node import Extern, Program, Source, reads, tensors_in
from stoker.loop.text import argument_text, layout_text
from stoker.loop.view import Stored
from stoker.schedule.draft import Draft
from stoker.schedule.kernel import Call, Kernel, build, kernel_text
from stoker.schedule.order import order
from stoker.schedule.score import Groups, group
from stoker.shape.expr import Expr, Symbol


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory for a buffer."""

    buffer: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Run:
    """Call a kernel of the plan on buffers and sizes."""

    kernel: int
    buffers: tuple[str, ...]
    sizes: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """Call an ATen operator; its results are buffers."""

    operator: Any
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[str | None, ...]
    layouts: tuple[Layout | None, ...]
    """What the results are expected to be; one that differs is copied."""
    several: bool


@dataclass(frozen=True, slots=True)
class Free:
    """A buffer is not needed any more."""

    buffer: str


Step = Allocate | Run | Library | Free


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a call does. Inputs in order; None marks a number."""

    inputs: tuple[str | None, ...]
    constants: tuple[tuple[str, torch.Tensor], ...]
    symbols: tuple[tuple[Symbol, Source], ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    origins: tuple[tuple[str, ...], ...] = ()
    """For each kernel, the operators it stands for."""


def make_plan(program: Program) -> Plan:
    """Group, order, and write down the steps."""
    groups = group(program)
    sequence = order(groups)
    wanted = _needed_later(program, groups)
    steps: list[Step] = []
    kernels: dict[Kernel, int] = {}
    origins: list[tuple[str, ...]] = []
    dtypes = {name: layout.dtype for name, layout in program.layouts.items()}
    for item in sequence:
        if isinstance(item, Extern):
            steps.append(_library(item, program))
            continue
        call = build(item, frozenset(item.writes & wanted[item]), dtypes)
        if call.kernel not in kernels:
            kernels[call.kernel] = len(kernels)
            origins.append(call.origins)
        steps.append(Run(kernels[call.kernel], call.buffers, call.sizes))
    return Plan(
        tuple(program.inputs),
        tuple(program.constants.items()),
        tuple(program.symbols.items()),
        tuple(kernels),
        _with_memory(program, steps, kernels),
        tuple(program.outputs),
        tuple(origins),
    )


def _library(node: Extern, program: Program) -> Library:
    layouts = tuple(None if name is None else program.layouts[name] for name in node.writes)
    return Library(node.operator, node.arguments, tuple(node.keywords.items()), node.writes, layouts, node.several)


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


def _touched(step: Step, kernels: Sequence[Kernel]) -> tuple[list[str], list[str]]:
    """The buffers a step reads, and those it writes into memory that must exist."""
    if isinstance(step, Run):
        written = kernels[step.kernel].written
        return list(step.buffers), [b for n, b in enumerate(step.buffers) if n in written]
    if isinstance(step, Library):
        return [t.buffer for t in tensors_in((step.arguments, [v for _, v in step.keywords]))], []
    return [], []


def _with_memory(program: Program, steps: list[Step], kernels: dict[Kernel, int]) -> tuple[Step, ...]:
    """Allocate each buffer before its first write, free it after its last use."""
    outside = {n for n in program.inputs if n} | set(program.constants)
    outputs = {t.buffer for t in tensors_in(program.outputs)}
    base = _bases(steps, program)
    last: dict[str, int] = {}
    table = list(kernels)
    for position, step in enumerate(steps):
        for name in _touched(step, table)[0]:
            for shared in base.get(name, {name}) | {name}:
                last[shared] = position
        if isinstance(step, Library):
            last.update({r: position for r in step.results if r is not None})
    result: list[Step] = []
    made: set[str] = set(outside)
    for position, step in enumerate(steps):
        for name in _touched(step, table)[1]:
            if name not in made:
                made.add(name)
                result.append(Allocate(name, program.layouts[name]))
        if isinstance(step, Library):
            made |= {r for r in step.results if r is not None}
        result.append(step)
        result += [Free(n) for n, at in last.items() if at == position and n not in outside | outputs]
    return tuple(result)


def _bases(steps: list[Step], program: Program) -> dict[str, set[str]]:
    """For results of library calls that may share memory with arguments: those arguments."""
    shared: dict[str, set[str]] = {}
    aliasing = {n.writes for n in program.nodes if isinstance(n, Extern) and n.aliases}
    for step in steps:
        if isinstance(step, Library) and step.results in aliasing:
            names = {t.buffer for t in tensors_in((step.arguments, [v for _, v in step.keywords]))}
            names |= {b for n in names for b in shared.get(n, ())}
            shared |= {r: names for r in step.results if r is not None}
    return shared


def plan_text(plan: Plan) -> str:
    """The plan for people and golden tests."""
    lines = []
    for number, kernel in enumerate(plan.kernels):
        lines.append(f"kernel {number}: {kernel_text(kernel)}")
    for step in plan.steps:
        lines.append(_step_text(step))
    lines.append("return " + ", ".join(argument_text(o) for o in plan.outputs))
    return "\n".join(lines)


def _step_text(step: Step) -> str:
    match step:
        case Allocate():
            return f"allocate {step.buffer}: {layout_text(step.layout)}"
        case Run():
            sizes = f" sizes {', '.join(str(s) for s in step.sizes)}" if step.sizes else ""
            return f"run kernel {step.kernel} on {', '.join(step.buffers)}{sizes}"
        case Library():
            arguments = [argument_text(a) for a in step.arguments]
            arguments += [f"{name}={argument_text(value)}" for name, value in step.keywords]
            return f"{', '.join(str(r) for r in step.results)} = {step.operator}({', '.join(arguments)})"
        case Free():
            return f"free {step.buffer}"


