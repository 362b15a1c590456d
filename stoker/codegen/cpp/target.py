"""The processor as a target. Thresholds were measured on AVX2 and AVX-512 machines (docs/ir/loop.md)."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch

from stoker.codegen.cpp.shape import Shape, shape_of
from stoker.loop.index import Dimensions, count
from stoker.loop.instruction import LoopInstruction
from stoker.loop.target import Target
from stoker.runtime.build import cores

LARGEST_SCRATCH_BYTES = 1 << 17


def _fits_stack(outer: Dimensions, inner: Dimensions, across: Sequence[LoopInstruction], item_bytes: int) -> bool:
    """Arrays on the stack of one outer point: only where inner loops walk along memory, and they fit the nearest caches."""
    elements = count(inner).value
    fits = elements is not None and elements * item_bytes <= LARGEST_SCRATCH_BYTES
    return fits and shape_of(outer, inner, across) is Shape.ROWS


CPU = Target(
    device="cpu",
    architecture=platform.machine(),
    processors=cores(),
    private=_fits_stack,
    inline_cost=12,
    inline_reads=1 << 16,
    largest_cost=600,
    largest_reads=24,
    one_pass_bytes=1 << 22,
    one_pass_rows=64,
    largest_body=500,
    most_buffers=40,
    alignment_bytes=64,
    rounds_products=torch.backends.cpu.get_cpu_capability() == "DEFAULT",
)
