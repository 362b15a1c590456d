"""Which of several ways is fastest on this machine? Measured once for each shape."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

import torch

from stoker import torch_private
from stoker.runtime import choices
from stoker.runtime.device import elapsed, surroundings

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


def choose_activation(sizes: tuple[int, int, int], dtype: torch.dtype, turned: bool, function: str) -> bool:
    """Is the device's library faster with bias, product and function in one call than the product and a kernel after it?

    `sizes` are rows, columns and shared size; `turned`, does the second factor lie as a linear layer's weight does?"""
    if not library_has(function):
        return False
    question = [*surroundings(), "activation", *sizes, str(dtype), turned, function]
    answer = choices.known(question)
    if answer is None:
        answer = _is_faster_with(sizes, dtype, turned, function)
        choices.keep(question, answer)
    return bool(answer)


_FUNCTIONS_OF_DEVICE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
}
DEVICE_ROUNDS, DEVICE_CALLS = 5, 10
CLEARLY = 0.98
"""One call must take at most this share of two."""


def _is_faster_with(sizes: tuple[int, int, int], dtype: torch.dtype, turned: bool, function: str) -> bool:
    rows, columns, shared = sizes
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[torch.cuda.current_device()]):
        bias, x, w = (
            torch.randn(s, dtype=dtype, device="cuda") for s in ((columns,), (rows, shared), (columns, shared))
        )
        w = w.t() if turned else w.t().contiguous()
        out = torch.empty(rows, columns, dtype=dtype, device="cuda")
        after = _FUNCTIONS_OF_DEVICE[function]

        def apart() -> None:
            for _ in range(DEVICE_CALLS):
                after(torch.addmm(bias, x, w, out=out))

        def together() -> None:
            for _ in range(DEVICE_CALLS):
                torch.ops.aten._addmm_activation(bias, x, w, use_gelu=function == "gelu", out=out)

        for way in (apart, together):
            way()  # libraries choose their kernels
        times = [(elapsed(apart), elapsed(together)) for _ in range(DEVICE_ROUNDS)]
    return min(t for _, t in times) < CLEARLY * min(a for a, _ in times)


_POINTS = (-3.0, -2.5, -2.25, -2.0, -0.5, 0.5, 2.25, 3.0)
"""Where the two forms of GELU differ, by 2e-4 and more, and where they do not."""


@functools.cache
def library_has(function: str) -> bool:
    """Does the device's library compute the function as eager does, of what is no number as well? That is no promise: it is asked."""
    points = torch.tensor([*_POINTS, float("nan"), *_POINTS[1:]], dtype=torch.float16, device="cuda")
    with torch.inference_mode(False), torch.no_grad():
        nothing, one = torch.zeros_like(points), torch.eye(len(points), dtype=torch.float16, device="cuda")
        found = torch.ops.aten._addmm_activation(nothing, points.diag(), one, use_gelu=function == "gelu").diagonal()
        wanted = _FUNCTIONS_OF_DEVICE[function](points.double())
    return bool(torch.allclose(found.double(), wanted, rtol=2e-3, atol=5e-5, equal_nan=True))


_measured: list[bool] = []


def give_back() -> None:
    """After measuring: the memory it took goes back to the system. The C library would keep it, as one large hole."""
    if _measured and _trim is not None:
        _measured.clear()
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc has it; others give memory back by themselves."""
