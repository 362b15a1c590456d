"""Buffers of a program as tensors: memory for one, views of it, and results of libraries laid out as was foretold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from stoker.loop.layout import Layout
from stoker.loop.view import Scalar, Stored
from stoker.nest import map_leaves
from stoker.shape.expr import Expr, Symbol
from stoker.shape.walk import evaluate

Memory = dict[str, torch.Tensor]
"""Buffers as tensors whose first element is the buffer's first."""


def fetch(value: Any, memory: Memory, sizes: Mapping[Symbol, int]) -> Any:
    """An argument or output as torch wants it."""
    return map_leaves(lambda leaf: _fetched(leaf, memory, sizes), value)


def _fetched(value: Any, memory: Memory, sizes: Mapping[Symbol, int]) -> Any:
    if isinstance(value, Stored):
        base = memory[value.buffer]
        if isinstance(value, Scalar):
            return base.item()
        if base.layout is not torch.strided:
            return base  # a packed weight, which only libraries read
        shape, strides = [evaluate(s, sizes) for s in value.sizes], [evaluate(s, sizes) for s in value.strides]
        if base.dtype is not value.dtype:
            base = base.view(value.dtype)
        return base.as_strided(shape, strides, base.storage_offset() + evaluate(value.offset, sizes))
    return evaluate(value, sizes) if isinstance(value, Expr) else value


def allocate(layout: Layout, sizes: Mapping[Symbol, int]) -> torch.Tensor:
    """Memory for a buffer."""
    shape, strides = [evaluate(s, sizes) for s in layout.sizes], [evaluate(s, sizes) for s in layout.strides]
    return torch.empty_strided(shape, strides, dtype=layout.dtype, device=layout.device)


def conform(result: torch.Tensor, layout: Layout, sizes: Mapping[Symbol, int]) -> torch.Tensor:
    """A library's result as the program expects it: copied if its strides are not those that were foretold."""
    strides = [evaluate(s, sizes) for s in layout.strides]
    if result.dtype is not layout.dtype:
        raise TypeError(f"a library call gave {result.dtype} where {layout.dtype} was foretold")
    if all(a == b or n <= 1 for a, b, n in zip(result.stride(), strides, result.shape)) or not result.numel():
        return result
    return allocate(layout, sizes).copy_(result)
