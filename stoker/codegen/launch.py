"""Calls of kernels as records of the executor: one for each run, several for a batch.

A batch has a table in the device's memory, with what the kernel takes for each row. It is made anew at each call, because buffers move:
allocated, filled by kernels that take words as their parameters, read by the one that does the work, and freed.
"""

from __future__ import annotations

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


def run(coding: Encoding, step: Run) -> record.RunStep | record.LaunchStep:
    """A call of a kernel."""
    slots, sizes = tuple(coding.slot(b) for b in step.buffers), coding.numbers.each(step.sizes)
    launchable = coding.kernels[step.kernel].launchable
    match launchable:
        case Native(address):
            return record.RunStep(record.NativeKernel(coding.hold(address)), slots, sizes)
        case Launch():
            written = coding.plan.kernels[step.kernel].written
            return _launch(
                coding,
                launchable,
                programs=substitute(launchable.programs, sizes_of(step)),
                slots=slots,
                written=tuple(n in written for n in range(len(slots))),
                value_bytes=launchable.value_bytes,
                sizes=sizes,
                origins=_origins(coding, step),
            )
        case LaunchBatch() | None:
            raise AssertionError("a kernel that the executor cannot run on one row of buffers")
    assert_never(launchable)


def batch(coding: Encoding, step: Batch) -> list[record.PlanStep]:
    """A call of a kernel on many rows."""
    kernel, launchable = coding.plan.kernels[step.kernel], coding.kernels[step.kernel].launchable
    assert isinstance(launchable, LaunchBatch)
    places = launchable.places([row.points for row in step.rows], kernel.device)
    slots = [coding.slot(b) for row in step.rows for b in row.buffers]
    written = [n in kernel.written for n in range(len(kernel.arguments))] * len(step.rows)
    value_bytes = list(launchable.value_bytes) * len(step.rows)
    table, width = coding.fresh("table"), launchable.fill_words
    fills = range(0, len(slots), width)
    layout = record.BufferLayout(
        dtype_name(torch.int64),
        coding.numbers.each([len(fills) * width]),
        coding.numbers.each([1]),
        record.Device(str(kernel.device)),
    )
    steps: list[record.PlanStep] = [record.AllocateStep(table, layout)]
    for start in fills:
        part = slice(start, start + width)
        spare = width - len(slots[part])
        steps.append(
            _launch(
                coding,
                launchable.fill,
                programs=launchable.fill.programs,
                slots=(table, *slots[part], *[table] * spare),
                written=(True, *written[part], *[False] * spare),
                value_bytes=(0, *value_bytes[part], *[0] * spare),
                sizes=coding.numbers.each([start]),
                origins=_origins(coding, step),
                hands_on=True,
            )
        )
    steps.append(
        _launch(
            coding,
            launchable.launch,
            programs=as_expr(len(places[0])),
            slots=(table, *(coding.constant(part) for part in places)),
            written=(False,) * (1 + len(places)),
            value_bytes=launchable.launch.value_bytes,
            sizes=(),
            origins=_origins(coding, step),
        )
    )
    return [*steps, record.FreeStep(table)]


def _launch(
    coding: Encoding,
    launch: Launch,
    *,
    programs: Expr,
    slots: tuple[record.BufferSlot, ...],
    written: tuple[bool, ...],
    value_bytes: tuple[int, ...],
    sizes: tuple[record.Number, ...],
    origins: str,
    hands_on: bool = False,
) -> record.LaunchStep:
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
        origins=origins,
        hands_on=hands_on,
    )


def _origins(coding: Encoding, step: Run | Batch) -> str:
    return ", ".join(coding.plan.origins[step.kernel])
