"""Which of several ways is fastest on this machine? Measured once for each shape."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from stoker import torch_private

GAIN = 1.08
"""A packed weight costs its memory a second time, so it must be faster by this much."""
ROUNDS = 5
_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
}


def best(function: Callable[[], object]) -> float:
    """The shortest of a few runs, in seconds."""
    shortest = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def choose_linear(rows: int, inputs: int, outputs: int, function: str) -> str:
    """The fastest way to compute a linear layer and a function behind it: plain, mkl or onednn."""
    return _choose_linear(rows, inputs, outputs, function, torch.get_num_threads())


@functools.cache
def _choose_linear(rows: int, inputs: int, outputs: int, function: str, threads: int) -> str:
    with torch.inference_mode(False), torch.no_grad():
        x, weight, bias = torch.ones(rows, inputs), torch.ones(outputs, inputs), torch.ones(outputs)
        out = torch.empty(rows, outputs)
        then = _FUNCTIONS[function]
        ways = {"plain": best(lambda: then(torch.addmm(bias, x, weight.t(), out=out))) / GAIN}
        if torch_private.PACK_FOR_MKL is not None:
            for_mkl = torch_private.PACK_FOR_MKL(weight, rows)
            ways["mkl"] = best(lambda: then(torch_private.LINEAR_BY_MKL(x, for_mkl, weight, bias, rows)))
        if torch.backends.mkldnn.is_available():
            packed = torch_private.PACK_FOR_ONEDNN(weight, rows)
            last: tuple[object, ...] = (function, [], "none" if function == "gelu" else "")
            ways["onednn"] = best(lambda: torch_private.LINEAR_BY_ONEDNN(x, packed, bias, *last))
        return min(ways, key=ways.__getitem__)
