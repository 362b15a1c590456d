"""Kernels that differ in their sizes alone, launched together: what they compute, and when they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import optim

import stoker
from stoker.codegen import plan_records as record
from stoker.codegen.backend import Built, Launch, LaunchBatch
from stoker.codegen.executor import encode
from stoker.codegen.triton.batch import FILL, fill_signature, fill_source, places
from stoker.loop.layout import Layout
from stoker.runtime.cubin import Job, compile_all
from stoker.schedule.plan import Plan
from stoker.schedule.step import Batch, Run
from stoker.shape.expr import constant
from tests.stages.two_devices import DEVICE, PROCESSOR, TwoDevices

SIZES = [(3, 5), (1023,), (1024,), (7,), (32, 40), (1,), (2, 2, 700)]
LIKE = 6
"""Those with a loop: one element has none, and its kernel is another."""
Tensors = list[torch.Tensor]


def tensors(dtype: torch.dtype = torch.float32) -> Tensors:
    torch.manual_seed(0)
    return [(torch.randn(s) * 3).to(dtype) for s in SIZES]


def in_turns(tensors: Tensors) -> list[Any]:
    """Batches that wait for each other."""
    first = [t * 2 + 1 for t in tensors]
    total = sum(t.sum() for t in first)
    return [t.tanh() * total.tanh() for t in first]


def each_of_the_last(tensors: Tensors) -> list[Any]:
    """None can wait: each reads what the one before made."""
    made = [tensors[0]]
    for _ in range(4):
        made.append(made[-1] * 2 + 1)
    return made


def given_to_all(tensors: Tensors) -> list[Any]:
    return [t + tensors[-2] for t in tensors]


def of_two_kinds(tensors: Tensors) -> list[Any]:
    return [t.sin() if n % 2 else t.cos() * 2 for n, t in enumerate(tensors)]


PROGRAMS: dict[str, tuple[Callable[[Tensors], Any], list[int]]] = {
    "each": (lambda ts: [t.tanh() + 1 for t in ts], [6]),
    "two results": (lambda ts: [r for t in ts for r in (t.abs(), t.abs() > 1)], [6]),
    "in turns": (in_turns, []),
    "each of the last": (each_of_the_last, []),
    "given to all": (given_to_all, [6]),
    "of two kinds": (of_two_kinds, [4, 2]),
    "other types": (lambda ts: [t.to(torch.float16) for t in ts] + [t.long() for t in ts], []),
    "numbers": (lambda ts: [t.sum() * 2 for t in ts], []),
    "halves": (lambda ts: [t[: len(t) // 2 + 1] * 2 for t in ts], [6]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, dtype: torch.dtype) -> None:
    (program, rows), backend = PROGRAMS[name], TwoDevices()
    given = tensors(dtype)
    mine = stoker.compile(program, backend=backend, fullgraph=True)(given)
    near = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(mine, program(given), **near)
    found = [len(s.rows) for plan in backend.plans for s in plan.steps if isinstance(s, Batch)]
    if dtype is torch.float32 and rows:
        assert set(rows) <= set(found), found
    if name == "each of the last":
        assert not found


def swapped(a: Tensors) -> None:
    first = [t + 0 for t in a]
    for t, s in zip(a, [first[0] * 2, first[1] * 2, first[2] * 2]):
        t.copy_(s)


def each_reads_another(a: Tensors) -> None:
    """What one writes another one reads as it was."""
    x, y, z = a
    new = [y * 2 + 1, z * 2 + 1, x * 2 + 1]
    for t, n in zip(a, new):
        t.copy_(n)


def twice(a: Tensors) -> None:
    for t in a:
        t.mul_(2).add_(1)
    for t in a:
        t.sub_(a[0])


@pytest.mark.parametrize("program", [swapped, each_reads_another, twice], ids=lambda p: p.__name__)
def test_in_place(program: Callable[[Tensors], None]) -> None:
    torch.manual_seed(0)
    ours = [torch.randn(300), torch.randn(300), torch.randn(300)]
    eager = copy.deepcopy(ours)
    stoker.compile(program, backend=TwoDevices(), fullgraph=True)(ours)
    program(eager)
    torch.testing.assert_close(ours, eager)


def stepped(place: torch.device) -> TwoDevices:
    torch.manual_seed(0)
    backend = TwoDevices(place)
    parameters = [torch.nn.Parameter(torch.randn(s)) for s in SIZES]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = optim.AdamW(parameters, 1e-2, foreach=True)
    optimizer.step()
    stoker.compile(optimizer.step, backend=backend, fullgraph=True)()
    return backend


@pytest.mark.parametrize("place", [PROCESSOR, DEVICE], ids=str)
def test_an_optimizer_step_is_a_launch(place: torch.device) -> None:
    """And one more for its counters, where they are on the device; and one for a parameter of one element."""
    (plan,) = stepped(place).plans
    on_device = [s for s in plan.steps if isinstance(s, (Run, Batch)) and plan.kernels[s.kernel].device == DEVICE]
    counters = [LIKE] if place == DEVICE else []
    assert [len(s.rows) for s in on_device if isinstance(s, Batch)] == [*counters, LIKE]
    assert len(on_device) == len(counters) + 2


def test_gradients_are_clipped_by_the_same_launch() -> None:
    """Norms are the library's, for all at once; what they lead to is a number of the device that all rows read. (One parameter has as many
    elements as there are norms, and is part of the kernel that reduces them.)"""
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(s)) for s in SIZES]
    eager, backend = copy.deepcopy(ours), TwoDevices()
    optimizers = [optim.AdamW(p, 1e-2, foreach=True) for p in (ours, eager)]

    def step(parameters: Tensors, optimizer: optim.Optimizer) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=True)
        optimizer.step()

    compiled = stoker.compile(step, backend=backend)
    for number in range(3):
        for p, q in zip(ours, eager):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        (compiled if number else step)(ours, optimizers[0])
        step(eager, optimizers[1])
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert [len(s.rows) for plan in backend.plans for s in plan.steps if isinstance(s, Batch)] == [LIKE - 1]


def test_who_reads_a_large_result_does_not_wait() -> None:
    """It runs when that is made."""

    def program(tensors: Tensors, w: torch.Tensor) -> list[Any]:
        return [(t @ w).relu() for t in tensors]

    for rows, batches in ((64, 1), (1 << 12, 0)):
        backend = TwoDevices()
        given = [torch.randn(rows, 128), torch.randn(rows + 1, 128)]
        stoker.compile(program, backend=backend, fullgraph=True)(given, torch.randn(128, 128))
        assert sum(isinstance(s, Batch) for plan in backend.plans for s in plan.steps) == batches
        stoker.reset()


def filled(plan: Plan, layouts: dict[str, Layout]) -> tuple[list[int], record.PlanRecord]:
    """The slots that launches write to the table of a plan's batch, in the order of the table."""
    launch = Launch(1, 128, 0, False, constant(1), False, False, (0,) * 4)
    fill = Launch(2, 32, 0, False, constant(1), False, False, (0,) * 6)
    built = []
    for kernel in plan.kernels:
        bytes_of = tuple(d.itemsize if n in kernel.values else 0 for n, d in enumerate(kernel.arguments))
        batch = LaunchBatch(launch, fill, 5, bytes_of, lambda lengths, device: places(lengths, 1024, PROCESSOR))
        built.append(
            Built(
                batch if kernel.batched else Launch(3, 32, 0, False, constant(1), False, False, bytes_of),
                lambda *a: 0,
                "",
            )
        )
    encoded, _ = encode(plan, layouts, built)
    table: dict[int, int] = {}
    for step in encoded.steps:
        if isinstance(step, record.LaunchStep) and step.hands_on:
            (place,) = step.sizes
            table |= {encoded.numbers[place] + n: slot for n, slot in enumerate(step.slots[1:])}
    return [table[n] for n in sorted(table)], encoded


def test_the_table_has_a_line_for_each_row() -> None:
    backend = stepped(PROCESSOR)
    (plan,) = backend.plans
    (batch,) = [s for s in plan.steps if isinstance(s, Batch)]
    table, encoded = filled(plan, backend.layouts)
    words = [b for row in batch.rows for b in row.buffers]
    names = dict(zip(table, words))
    assert [names[slot] for slot in table[: len(words)]] == words
    assert len(table) % 5 == 0 and len(table) - len(words) < 5
    *_, kernel, free = encoded.steps
    assert isinstance(kernel, record.LaunchStep) and not kernel.hands_on and isinstance(free, record.FreeStep)
    assert encoded.numbers[kernel.programs] == sum(-(-row.points // 1024) for row in batch.rows)
    assert kernel.slots[0] == free.slot == table[-1]


def test_places() -> None:
    owners, firsts, points = places([1, 2048, 1025], 1024, PROCESSOR)
    assert (owners.tolist(), firsts.tolist(), points.tolist()) == ([0, 1, 1, 2, 2], [0, 1, 3], [1, 2048, 1025])


def test_sources_compile_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    units = [u for place in (PROCESSOR, DEVICE) for u in stepped(place).device.units if u.batched]
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90) for u in units]
    binaries = compile_all([*jobs, Job(FILL, fill_source(), fill_signature(), (0,), 1, 90)])
    assert len(binaries) == 4 and all(b.content.startswith(b"\x7fELF") for b in binaries)


def test_all_is_read_before_anything_is_written() -> None:
    """Though a moment is written before the other one is needed."""
    (source,) = [u.source for u in stepped(PROCESSOR).device.units if u.batched]
    whole, rest = source.split("    else:\n")
    for part in (whole, rest):
        assert part.rindex("tl.load(a") < part.index("tl.store(")
