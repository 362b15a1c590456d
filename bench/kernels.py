"""Single kernels against their limits: the time of copying each input and output once, and of computing in the cache.

python -m bench.kernels [--write]          writes the table of docs/benchmarks.md
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import stoker
from bench.report import machine, put
from stoker.pipeline import compile_captured

ROWS, COLUMNS, PIECES = 4096, 1024, 32


def softmax(x: Any, y: Any, w: Any, b: Any) -> Any:
    return torch.softmax(x, -1)


def layer_norm(x: Any, y: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (COLUMNS,), w, b)


def gelu(x: Any, y: Any, w: Any, b: Any) -> Any:
    return F.gelu(x)


def gelu_tanh(x: Any, y: Any, w: Any, b: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def silu(x: Any, y: Any, w: Any, b: Any) -> Any:
    return F.silu(x)


def rms_norm(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rotary(x: Any, y: Any, w: Any, b: Any) -> Any:
    half = torch.cat((-x[:, COLUMNS // 2 :], x[:, : COLUMNS // 2]), -1)
    return x * w + half * b


def cross_entropy(x: Any, y: Any, w: Any, b: Any) -> Any:
    return F.cross_entropy(x, y)


def column_sum(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.sum(0)


def total(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.sum()


def transpose(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.t().contiguous()


def transpose_each(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.view(-1, 128, COLUMNS).transpose(1, 2).contiguous()


def transpose_add(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.t() + x.view(COLUMNS, -1)


def heads_first(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.view(-1, 64, COLUMNS // 64, 64).transpose(1, 2).contiguous()


def channels_last(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.view(-1, 64, 64, COLUMNS // 64).permute(0, 2, 3, 1).contiguous()


def channels_first(x: Any, y: Any, w: Any, b: Any) -> Any:
    return x.view(-1, 64, COLUMNS // 64, 64).permute(0, 3, 1, 2).contiguous()


CASES: dict[Callable[..., Any], int] = {
    softmax: 2, layer_norm: 2, gelu: 2, gelu_tanh: 2, silu: 2, rms_norm: 2, rotary: 2, cross_entropy: 1, column_sum: 1, total: 1,
    transpose: 2, transpose_each: 2, transpose_add: 3, heads_first: 2, channels_last: 2, channels_first: 2,
}  # fmt: skip
"""Program to the number of (4096 x 1024) tensors it reads and writes."""


ROUNDS = 40


def best(*functions: Callable[[], Any]) -> list[float]:
    """The shortest time of each, in milliseconds of this thread.

    Rounds are interleaved, so that what else the machine does meets all. Each runs twice in a row and the second time counts: its
    results then lie in memory that the first one's had, and no page is new.
    """
    shortest = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for position, function in enumerate(functions):
            function()
            start = time.thread_time()
            function()
            shortest[position] = min(shortest[position], time.thread_time() - start)
    return [seconds * 1e3 for seconds in shortest]


def in_cache(compiled: Callable[..., Any], x: Any, y: Any, w: Any, b: Any) -> Callable[[], Any]:
    """Computing alone: as many rows, a few at a time that stay in the cache."""
    few = ROWS // PIECES
    part, labels = x[:few].clone(), y[:few].clone()
    compiled(part, labels, w, b)
    return lambda: [compiled(part, labels, w, b) for _ in range(PIECES)]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, w, b = torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS), torch.randn(COLUMNS)
    y = torch.randint(0, COLUMNS, (ROWS,))
    target = torch.empty_like(x)
    print(*(f"{word:>14}" for word in ("kernel", "ms", "over copying", "over limit", "eager ms", "copy ms")))
    lines = [
        f"Machine: {machine()}.",
        "",
        "| kernel | ms | over copying | over the larger of copying and computing | eager ms | copying one tensor, ms |",
        "|---|---|---|---|---|---|",
    ]
    with torch.no_grad():
        for program, passes in CASES.items():
            stoker.reset()
            compiled = stoker.compile(program, backend=compile_captured, dynamic=False)
            torch.testing.assert_close(compiled(x, y, w, b), program(x, y, w, b), rtol=1e-4, atol=1e-4)
            mine, eager, copy, computing = best(
                functools.partial(compiled, x, y, w, b), functools.partial(program, x, y, w, b),
                functools.partial(target.copy_, x), in_cache(compiled, x, y, w, b),
            )  # fmt: skip
            limit = copy * passes / 2
            words = (
                program.__name__, f"{mine:.2f}", f"{mine / limit:.2f}", f"{mine / max(limit, computing):.2f}", f"{eager:.2f}",
                f"{copy:.2f}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(words)} |")
            print(*(f"{word:>14}" for word in words), flush=True)
    if "--write" in sys.argv:
        put("kernels", "\n".join(lines))


if __name__ == "__main__":
    main()
