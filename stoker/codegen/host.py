"""The plan as a Python function: the reference that the executor is tested against, and what people read.

In:  a plan, and its kernels as functions of buffers and sizes, which give back the bits of failed indices.
Out: a function of the plan's inputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.codegen.backend import HostKernel
from stoker.graph.undo import mark_written
from stoker.loop.memory import allocate, conform, fetch
from stoker.loop.op import outside_error
from stoker.schedule.plan import Plan, first_write
from stoker.schedule.step import Allocate, Batch, Free, Library, Run
from stoker.shape.expr import Symbol
from stoker.shape.walk import evaluate


def native_kernel(address: int) -> HostKernel:
    """A function of C with the executor's calling convention."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)

    def call(buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> int:
        pointers = (ctypes.c_void_p * len(buffers))(*(b.data_ptr() for b in buffers))
        numbers = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        return int(function(ctypes.addressof(pointers), ctypes.addressof(numbers)))

    return call


def host_program(plan: Plan, kernels: Sequence[HostKernel]) -> Callable[..., tuple[Any, ...]]:
    """Run the steps of a plan, one by one."""
    written = first_write(plan)

    def call(*inputs: Any) -> tuple[Any, ...]:
        sizes: dict[Symbol, int] = {}
        for name, source in plan.symbols:
            sizes[name] = source.read(inputs)
        memory: dict[str, torch.Tensor] = {n: v.detach() for n, v in zip(plan.inputs, inputs) if n is not None}
        memory |= {name: value.detach() for name, value in plan.constants}
        memory |= _temporaries(plan, sizes)
        for position, step in enumerate(plan.steps):
            try:
                _run(step, memory, sizes, kernels)
            except Exception as error:
                if position >= written:
                    mark_written(error)
                raise
        return tuple(fetch(output, memory, sizes) for output in plan.outputs)

    return call


def _temporaries(plan: Plan, sizes: dict[Symbol, int]) -> dict[str, torch.Tensor]:
    """The arenas' buffers, as tensors that share their memory."""
    made = {}
    for arena in plan.arenas:
        block = torch.empty(evaluate(arena.size_bytes, sizes), dtype=torch.uint8, device=arena.device)
        for name, offset, layout in arena.offsets:
            shape, strides = [evaluate(s, sizes) for s in layout.sizes], [evaluate(s, sizes) for s in layout.strides]
            start, item_bytes = evaluate(offset, sizes), layout.dtype.itemsize
            part = block[start : start + evaluate(layout.reach, sizes) * item_bytes]
            made[name] = part.view(layout.dtype).as_strided(shape, strides, start // item_bytes)
    return made


def _run(step: Any, memory: dict[str, torch.Tensor], sizes: dict[Symbol, int], kernels: Sequence[HostKernel]) -> None:
    match step:
        case Allocate():
            memory[step.buffer] = allocate(step.layout, sizes)
        case Run():
            outside = kernels[step.kernel]([memory[b] for b in step.buffers], [sizes[s] for s in step.sizes])
            if outside:
                raise outside_error(outside)
        case Batch():
            rows = [memory[b] for row in step.rows for b in row.buffers]
            kernels[step.kernel](rows, [row.points for row in step.rows])
        case Library():
            arguments = fetch(step.arguments, memory, sizes)
            keywords = {name: fetch(value, memory, sizes) for name, value in step.keywords}
            result = step.operator(*arguments, **keywords)
            for name, part, layout in zip(step.results, result if step.several else (result,), step.layouts):
                if name is not None and layout is not None:
                    memory[name] = conform(part, layout, sizes)
        case Free():
            memory.pop(step.buffer, None)
