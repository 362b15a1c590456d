"""What the executor launches, on a machine without a device: run as a program, because it takes the driver's place in its process.

    python -m tests.stages.launched

Plans of a device and the processor are run by the executor itself, with their memory on the processor and a stand-in for the driver.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

import stoker
from stoker import _C
from stoker.codegen import plan_records as record
from stoker.codegen.backend import Built, Launch, LaunchBatch, Site
from stoker.codegen.cpp.backend import CppBackend
from stoker.codegen.executor import encode
from stoker.codegen.triton.batch import WORDS, places
from stoker.lower.driver import lower_graph
from stoker.pipeline import improve
from stoker.schedule.kernel import Kernel
from stoker.schedule.plan import make_plan
from stoker.shape.expr import constant
from tests.stages.stand_in_driver import Launched, stand_in_driver
from tests.stages.two_devices import DEVICE, PROCESSOR, TwoDevices, here, moved, on_processor

SCRATCH = 2
"""Words that every launch ends in, for memory that Triton's kernels may take."""


class Executed(TwoDevices):
    """A back end whose plans the executor runs."""

    def compile(self, module: GraphModule, fakes: list[Any]) -> Any:
        moved(module, lambda fake: DEVICE if fake.dim() else self.numbers)
        processor = CppBackend()
        targets = {"cpu": processor.target, "cuda": self.device.target}
        improve(module)
        program = lower_graph(module, targets)
        plan = make_plan(program, targets)
        self.plans.append(plan)
        built = [
            processor.build([k], [Site(())], tune=False)[0] if k.device.type == "cpu" else launchable(k)
            for k in plan.kernels
        ]
        plan = replace(on_processor(plan), kernels=tuple(replace(k, device=PROCESSOR) for k in plan.kernels))
        encoded, objects = encode(plan, {name: here(layout) for name, layout in program.layouts.items()}, built)
        return _C.Plan(record.plain(replace(encoded, device=None)), objects, None)


def launchable(kernel: Kernel) -> Built:
    """A kernel whose handle is the number of its parameters."""

    def launch(parameters: int, value_bytes: tuple[int, ...] = (), overlaps: bool = True) -> Launch:
        return Launch(parameters + SCRATCH, 32, 0, overlaps, constant(1), False, False, value_bytes)

    value_bytes = tuple(d.itemsize if n in kernel.values else 0 for n, d in enumerate(kernel.arguments))
    if not kernel.batched:
        return Built(launch(len(value_bytes), value_bytes), lambda buffers, sizes: 0, "")
    cut = lambda lengths, device: places(lengths, 1024, PROCESSOR)  # noqa: E731
    batch = LaunchBatch(launch(4, (0,) * 4), launch(1 + WORDS + 1, overlaps=False), WORDS, value_bytes, cut)
    return Built(batch, lambda buffers, sizes: 0, "")


def number(word: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", word))[0])


def table_of(launched: list[Launched]) -> list[int]:
    """What the launches before the last one write to the table."""
    table: dict[int, int] = {}
    for fill in launched:
        (place,) = fill.words[1 + WORDS : 2 + WORDS]
        table |= {place + n: word for n, word in enumerate(fill.words[1 : 1 + WORDS])}
    return [table[n] for n in range(len(table))]


def an_optimizer_step() -> None:
    """A row of the table has the addresses of a parameter, its gradient and moments, and the numbers of this step."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in ((33, 7), (64,), (5, 5, 5)) * 40]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, 1e-3, foreach=True)
    optimizer.step()
    step, driver = stoker.compile(optimizer.step, backend=Executed(), fullgraph=True), stand_in_driver()
    for count in range(2, 20):
        driver.clear()
        step()
        *fills, work = driver.launched()
        assert work.overlaps and not any(fill.overlaps for fill in fills)
        assert len(fills) == -(-9 * len(parameters) // WORDS) and work.programs == len(parameters), len(fills)
        table = table_of(fills)
        for row, p in enumerate(parameters):
            *places_of, size, root, target = table[9 * row : 9 * row + 9]
            state = optimizer.state[p]
            m, v = state["exp_avg"].data_ptr(), state["exp_avg_sq"].data_ptr()
            assert places_of == [m, p.grad.data_ptr(), m, v, v, p.data_ptr()] and target == p.data_ptr()
            assert abs(number(size) + 1e-3 / (1 - 0.9**count)) < 1e-12
            assert abs(number(root) - (1 - 0.999**count) ** 0.5) < 1e-12


def numbers_by_value() -> None:
    driver, x = stand_in_driver(), torch.randn(50)
    for value in (torch.tensor(2.5, dtype=torch.float64), torch.tensor(-7), torch.tensor(-0.5, dtype=torch.float64)):
        stoker.reset()
        driver.clear()
        stoker.compile(lambda x, n: x * n, backend=Executed(), fullgraph=True)(x, value)
        (launched,) = driver.launched()
        (bits,) = struct.unpack("<Q", value.numpy().tobytes())
        assert bits in launched.words and x.data_ptr() in launched.words


def memory_that_is_not_aligned() -> None:
    """The work is done on copies; what it writes is written back when it is launched, not when the table is filled."""
    torch.manual_seed(0)
    tensors = [torch.randn(41)[1:] for _ in range(3)]
    before = [t.clone() for t in tensors]

    def program(tensors: list[torch.Tensor]) -> None:
        for t in tensors:
            t.mul_(2)

    driver = stand_in_driver()
    driver.clear()
    stoker.compile(program, backend=Executed(), fullgraph=True)(tensors)
    table = table_of(driver.launched()[:-1])[: 2 * len(tensors)]
    assert all(word % 16 == 0 for word in table) and not {t.data_ptr() for t in tensors} & set(table)
    torch.testing.assert_close(tensors, before)  # the stand-in computes nothing: copies are written back as they were


if __name__ == "__main__":
    _C.set_stream_source(lambda device: 0)
    for check in (an_optimizer_step, numbers_by_value, memory_that_is_not_aligned):
        stoker.reset()
        check()
        print(check.__name__)
