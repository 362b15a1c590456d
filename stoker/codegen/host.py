"""The plan as a Python function: the reference that the executor is tested against, and what people read.

In:  a plan, and its kernels as callables on (pointers, sizes).
Out: a function of the plan's inputs. `host_source` is the same as Python text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.loop.interpret import allocate, conform, fetch
from stoker.loop.op import outside_error
from stoker.schedule.plan import Plan
from stoker.schedule.step import Allocate, Free, Library, Run
from stoker.shape.expr import Symbol, evaluate

CKernel = Callable[[Any, Any], int]


def host_program(plan: Plan, kernels: Sequence[CKernel]) -> Callable[..., tuple[Any, ...]]:
    """Run the steps of a plan, one by one."""

    def call(*inputs: Any) -> tuple[Any, ...]:
        sizes: dict[Symbol, int] = {}
        for name, source in plan.symbols:
            given = inputs[source.argument]
            sizes[name] = int(given) if source.dimension is None else given.shape[source.dimension]
        memory: dict[str, torch.Tensor] = {n: v.detach() for n, v in zip(plan.inputs, inputs) if n is not None}
        memory |= {name: value.detach() for name, value in plan.constants}
        memory |= _temporaries(plan, sizes)
        for step in plan.steps:
            _run(step, memory, sizes, kernels)
        return tuple(fetch(output, memory, sizes) for output in plan.outputs)

    return call


def _temporaries(plan: Plan, sizes: dict[Symbol, int]) -> dict[str, torch.Tensor]:
    """The arena's buffers, as tensors that share its memory."""
    arena = torch.empty(evaluate(plan.arena.size_bytes, sizes), dtype=torch.uint8)
    made = {}
    for name, offset, layout in plan.arena.offsets:
        shape, strides = [evaluate(s, sizes) for s in layout.sizes], [evaluate(s, sizes) for s in layout.strides]
        start = evaluate(offset, sizes)
        bytes_ = evaluate(layout.reach, sizes) * layout.dtype.itemsize
        made[name] = (
            arena[start : start + bytes_].view(layout.dtype).as_strided(shape, strides, start // layout.dtype.itemsize)
        )
    return made


def _run(step: Any, memory: dict[str, torch.Tensor], sizes: dict[Symbol, int], kernels: Sequence[CKernel]) -> None:
    match step:
        case Allocate():
            memory[step.buffer] = allocate(step.layout, sizes)
        case Run():
            pointers = (ctypes.c_void_p * len(step.buffers))(*(memory[b].data_ptr() for b in step.buffers))
            numbers = (ctypes.c_int64 * max(len(step.sizes), 1))(*(sizes[s] for s in step.sizes))
            outside = kernels[step.kernel](pointers, numbers)
            if outside:
                raise outside_error(outside)
        case Library():
            arguments = fetch(step.arguments, memory, sizes)
            keywords = {name: fetch(value, memory, sizes) for name, value in step.keywords}
            result = step.operator(*arguments, **keywords)
            for name, part, layout in zip(step.results, result if step.several else (result,), step.layouts):
                if name is not None and layout is not None:
                    memory[name] = conform(part, layout, sizes)
        case Free():
            memory.pop(step.buffer, None)
