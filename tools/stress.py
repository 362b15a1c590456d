"""Many threads, calls, compilations and dropped models: no failure, and memory that stays.

    PYTHONPATH=. python tools/stress.py [--seconds 600] [--threads 16]

Threads take turns at four kinds of work, each compared with eager: calls of functions that all share, with sizes that change; functions
made anew and compiled; new versions of a shared function, because what it read has changed; and models of 8 MB that are compiled,
trained for a step and dropped. Memory is the process's resident set, after a first fifth in which caches fill.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import gc
import random
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import stoker

BACKENDS = ("eager", "aot_eager", "stoker")
MODEL_WIDTH = 1448
"""A square matrix of floats of this width is 8 MB."""


@dataclass
class Count:
    """What was done so far, by all threads."""

    done: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str) -> None:
        with self.lock:
            self.done[kind] += 1


def resident_bytes() -> int:
    """What is in memory, without garbage and without what the C library keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def formula(x: torch.Tensor, scale: float) -> torch.Tensor:
    y = torch.relu(x * scale)
    y.add_(1)
    return torch.softmax(y, -1) + x.mean()


class Settings:
    """What a shared function reads; a new value is a new version."""

    mode = 0


def reader(x: torch.Tensor, settings: Settings) -> torch.Tensor:
    return x.sin() if settings.mode % 2 else x.cos() + settings.mode % 3


SHARED = {backend: stoker.compile(formula, backend=backend) for backend in BACKENDS}


def call(choice: random.Random) -> None:
    x = torch.randn(choice.randint(2, 9), 8)
    for _ in range(20):
        torch.testing.assert_close(SHARED[choice.choice(BACKENDS)](x, 2.0), formula(x, 2.0))


def compile_anew(choice: random.Random) -> None:
    names: dict[str, Any] = {}
    exec(
        f"def made(x):\n    for i in range({choice.randint(1, 3)}):\n        x = x * 2 + i\n    return x.sum(0)", names
    )  # noqa: S102
    x = torch.randn(3, 4)
    found = stoker.compile(names["made"], backend=choice.choice(("eager", "aot_eager", "stoker")))(x)
    torch.testing.assert_close(found, names["made"](x))


def compile_again(choice: random.Random) -> None:
    settings, x = Settings(), torch.randn(4)
    compiled = stoker.compile(reader, backend=choice.choice(("eager", "aot_eager")))
    for mode in range(6):
        settings.mode = mode
        torch.testing.assert_close(compiled(x, settings), reader(x, settings))


def drop(choice: random.Random) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(MODEL_WIDTH, MODEL_WIDTH), torch.nn.ReLU())
    x = torch.randn(1, MODEL_WIDTH)
    compiled = stoker.compile(model, backend=choice.choice(BACKENDS))
    compiled(x).sum().backward()
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


WORK: dict[str, tuple[int, Callable[[random.Random], None]]] = {
    "20 calls": (20, call),
    "functions compiled": (4, compile_anew),
    "6 versions": (1, compile_again),
    "models dropped": (1, drop),
}
"""The kinds of work, and how often each comes."""


def work(number: int, until: float, count: Count) -> None:
    choice = random.Random(number)
    kinds = [name for name, (weight, _) in WORK.items() for _ in range(weight)]
    while time.monotonic() < until and not count.failures:
        kind = choice.choice(kinds)
        try:
            WORK[kind][1](choice)
        except Exception as error:
            count.failures.append(f"{kind}: {type(error).__name__}: {error}")
        count.add(kind)


def stress(seconds: float, threads: int) -> tuple[Count, int, int]:
    """What was done, and the resident bytes after a fifth of the time and at the end."""
    count, start = Count(), time.monotonic()
    torch.set_num_threads(1)
    running = [threading.Thread(target=work, args=(n, start + seconds, count)) for n in range(threads)]
    for thread in running:
        thread.start()
    while time.monotonic() < start + seconds / 5 and not count.failures:
        time.sleep(0.05)
    early = resident_bytes()
    for thread in running:
        thread.join()
    return count, early, resident_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=16)
    options = parser.parse_args()
    count, early, late = stress(options.seconds, options.threads)
    print(dict(count.done), f"resident: {early >> 20} MB after a fifth of the time, {late >> 20} MB at the end")
    print("\n".join(count.failures) or "no failure")
    raise SystemExit(bool(count.failures))


if __name__ == "__main__":
    main()
