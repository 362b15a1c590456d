"""Which of several ways is fastest on this machine? Measured once for each shape."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

import torch

from stoker import torch_private

GAIN = 1.08
"""A packed weight costs its memory a second time, so it must be faster by this much."""
ROUNDS, THOROUGH_ROUNDS = 5, 25
_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "gelu": torch.nn.functional.gelu,
}


def best(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The shortest of a few runs, in seconds."""
    shortest = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def choose_linear(rows: int, inputs: int, outputs: int, function: str, *, thorough: bool = False) -> str:
    """The fastest way to compute a linear layer and a function behind it: plain, mkl or onednn.

    A thorough choice measures longer, and takes any gain for the memory.
    """
    return _choose_linear(rows, inputs, outputs, function, torch.get_num_threads(), thorough)


def choose_join(rows: int, inputs: int, outputs: tuple[int, ...]) -> bool:
    """Are linear layers of one input faster as one, by enough to pay for the copy of their weights?"""
    return _choose_join(rows, inputs, outputs, torch.get_num_threads())


@functools.cache
def _choose_join(rows: int, inputs: int, outputs: tuple[int, ...], threads: int) -> bool:
    with torch.inference_mode(False), torch.no_grad():
        x, weight, bias = torch.ones(rows, inputs), torch.ones(sum(outputs), inputs), torch.ones(sum(outputs))
        whole, parts = torch.empty(rows, sum(outputs)), [torch.empty(rows, n) for n in outputs]
        ways = list(zip(bias.split(outputs), weight.split(outputs), parts))

        def apart() -> None:
            for b, w, out in ways:
                torch.addmm(b, x, w.t(), out=out)

        together = best(lambda: torch.addmm(bias, x, weight.t(), out=whole))
        _measured.append(True)
        return together * GAIN < best(apart)


@functools.cache
def _choose_linear(rows: int, inputs: int, outputs: int, function: str, threads: int, thorough: bool) -> str:
    measure = functools.partial(best, rounds=THOROUGH_ROUNDS if thorough else ROUNDS)
    with torch.inference_mode(False), torch.no_grad():
        layer = (torch.ones(rows, inputs), torch.ones(outputs, inputs), torch.ones(outputs))
        ways = {name: measure(way(*layer, function)) for name, way in _WAYS.items() if way is not None}
    ways["plain"] /= 1 if thorough else GAIN
    _measured.append(True)
    return min(ways, key=ways.__getitem__)


def _plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, function: str) -> Callable[[], object]:
    out, then = torch.empty(x.shape[0], weight.shape[0]), _FUNCTIONS[function]
    return lambda: then(torch.addmm(bias, x, weight.t(), out=out))


def _by_mkl(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, function: str) -> Callable[[], object]:
    packed, then, rows = torch_private.PACK_FOR_MKL(weight, x.shape[0]), _FUNCTIONS[function], x.shape[0]
    return lambda: then(torch_private.LINEAR_BY_MKL(x, packed, weight, bias, rows))


def _by_onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, function: str) -> Callable[[], object]:
    packed = torch_private.PACK_FOR_ONEDNN(weight, x.shape[0])
    last: tuple[object, ...] = (function, [], "none" if function == "gelu" else "")
    return lambda: torch_private.LINEAR_BY_ONEDNN(x, packed, bias, *last)


_WAYS: dict[str, Callable[..., Callable[[], object]] | None] = {
    "plain": _plain,
    "mkl": None if torch_private.PACK_FOR_MKL is None else _by_mkl,
    "onednn": _by_onednn if torch.backends.mkldnn.is_available() else None,
}
"""Each packs its weight when it is asked for, and holds it no longer than it is measured."""

_measured: list[bool] = []


def give_back() -> None:
    """After measuring: the memory it took goes back to the system. The C library would keep it, as one large hole."""
    if _measured and _trim is not None:
        _measured.clear()
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc has it; others give memory back by themselves."""
