"""Which of two ways is faster on this machine? Measured once for each shape."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from stoker import torch_private

GAIN = 1.08
"""A packed weight costs its memory a second time, so it must be faster by this much."""
ROUNDS = 5


def best(function: Callable[[], object]) -> float:
    """The shortest of a few runs, in seconds."""
    shortest = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


@functools.cache
def _linear_pays(rows: int, inputs: int, outputs: int, threads: int) -> bool:
    with torch.inference_mode(False), torch.no_grad():
        x, weight, bias = torch.ones(rows, inputs), torch.ones(outputs, inputs), torch.ones(outputs)
        out = torch.empty(rows, outputs)
        packed = torch_private.PACK_LINEAR(weight, rows)
        plain = best(lambda: torch.addmm(bias, x, weight.t(), out=out))
        return plain > GAIN * best(lambda: torch_private.PACKED_LINEAR(x, packed, weight, bias, rows))


def linear_pays(rows: int, inputs: int, outputs: int) -> bool:
    """Is a linear layer with a packed weight faster?"""
    return _linear_pays(rows, inputs, outputs, torch.get_num_threads())
