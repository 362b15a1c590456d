"""Calls of kernels as records of the executor: one for each run, several for a batch.

A batch has a table in the device's memory, with what the kernel takes for each row. It is made anew at each call, because buffers move:
allocated, filled by kernels that take words as their parameters, read by the one that does the work, and freed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import torch

from stoker.codegen import plan_records as record
from stoker.codegen.backend import Launch, LaunchBatch, Native
from stoker.codegen.encoding import Encoding, dtype_name
from stoker.schedule.step import Batch, Run
from stoker.shape.expr import Atom, Expr, as_expr, symbol
from stoker.shape.walk import substitute


def sizes_of(step: Run) -> dict[Atom, Expr]:
    """What a kernel calls its sizes."""
    return {symbol(f"n{i}"): as_expr(size) for i, size in enumerate(step.sizes)}


Place = tuple[record.BufferSlot, bool, int]
"""An argument of a kernel: its slot, whether it is written, and the bytes of a number that is taken by value."""


def run(coding: Encoding, step: Run) -> record.RunStep | record.LaunchStep:
    """A call of a kernel."""
    slots, sizes = tuple(coding.slot(b) for b in step.buffers), coding.numbers.each(step.sizes)
    launchable = coding.kernels[step.kernel].launchable
    match launchable:
        case Native(address):
            return record.RunStep(record.NativeKernel(coding.hold(address)), slots, sizes)
        case Launch():
            written = (n in coding.plan.kernels[step.kernel].written for n in range(len(slots)))
            programs = substitute(launchable.programs, sizes_of(step))
            return _launch(
                coding, step, launchable, programs, zip(slots, written, launchable.value_bytes, strict=True), sizes
            )
        case LaunchBatch() | None:
            raise AssertionError("a kernel that the executor cannot run on one row of buffers")
    assert_never(launchable)


def batch(coding: Encoding, step: Batch) -> list[record.PlanStep]:
    """A call of a kernel on many rows."""
    kernel, launchable = coding.plan.kernels[step.kernel], coding.kernels[step.kernel].launchable
    assert isinstance(launchable, LaunchBatch)
    slots = [coding.slot(b) for row in step.rows for b in row.buffers]
    written = [n in kernel.written for n in range(len(kernel.arguments))] * len(step.rows)
    words = list(zip(slots, written, list(launchable.value_bytes) * len(step.rows), strict=True))
    table, width = coding.fresh("table"), launchable.fill_words
    fills = range(0, len(words), width)
    length, stride = coding.numbers.each([len(fills) * width]), coding.numbers.each([1])
    layout = record.BufferLayout(dtype_name(torch.int64), length, stride, record.Device(str(kernel.device)))
    steps: list[record.PlanStep] = [record.AllocateStep(table, layout)]
    fill, launch = launchable.fill, launchable.launch
    for start in fills:
        part = words[start : start + width]
        given = [(table, True, 0), *part, *[(table, False, 0)] * (width - len(part))]
        steps.append(_launch(coding, step, fill, fill.programs, given, coding.numbers.each([start]), hands_on=True))
    places = launchable.places([row.points for row in step.rows], kernel.device)
    given = list(
        zip((table, *map(coding.constant, places)), (False,) * (1 + len(places)), launch.value_bytes, strict=True)
    )
    steps.append(_launch(coding, step, launch, as_expr(len(places[0])), given))
    return [*steps, record.FreeStep(table)]


def _launch(
    coding: Encoding,
    step: Run | Batch,
    launch: Launch,
    programs: Expr,
    places: Iterable[Place],
    sizes: tuple[record.Number, ...] = (),
    hands_on: bool = False,
) -> record.LaunchStep:
    slots, written, value_bytes = zip(*places)
    return record.LaunchStep(
        kernel=record.DeviceKernel(coding.hold(launch.function)),
        threads=launch.threads,
        shared_bytes=launch.shared_bytes,
        overlaps=launch.overlaps,
        programs=coding.numbers.of(programs),
        slots=slots,
        written=written,
        value_bytes=value_bytes,
        sizes=sizes,
        watches=launch.watches,
        origins=", ".join(coding.plan.origins[step.kernel]),
        hands_on=hands_on,
    )
