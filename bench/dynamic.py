"""Changing sizes: one compilation with `dynamic=True` against a compilation for each size, interleaved.

python -m bench.dynamic [--write]          writes the table of docs/benchmarks.md
"""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

import torch

import stoker
from bench.architectures import MODELS, WORDS
from bench.models import step
from bench.report import machine, mean, put
from stoker import log

SIZES = [(2, 32), (4, 64), (8, 96), (4, 128), (3, 100)]
ROUNDS = 12


def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(5, WORDS - 10, (batch, length))}


def best(model: Any, given: Any, train: bool) -> float:
    start = time.perf_counter()
    step(model, given, train)
    return time.perf_counter() - start


def row(name: str, train: bool) -> tuple[float, int]:
    """How fast the dynamic version is, as a share of the static one's speed; and how often it was compiled."""
    torch.manual_seed(0)
    model, _ = MODELS[name]()
    model.train(train)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    dynamic = stoker.compile(copy.deepcopy(model), dynamic=True)
    before = len(log.events("captured"))
    step(dynamic, inputs(5, 48), train)
    for size in SIZES:
        step(dynamic, inputs(*size), train)
    captures = len(log.events("captured")) - before
    ratios = []
    for size in SIZES:
        given = inputs(*size)
        static = stoker.compile(copy.deepcopy(model), dynamic=False)
        for one in (static, dynamic):
            step(one, given, train)
        times = {"static": float("inf"), "dynamic": float("inf")}
        for _ in range(ROUNDS):
            times["static"] = min(times["static"], best(static, given, train))
            times["dynamic"] = min(times["dynamic"], best(dynamic, given, train))
        ratios.append(times["static"] / times["dynamic"])
    return mean(ratios), captures


def main() -> None:
    torch.set_num_threads(2)
    lines = [f"Machine: {machine()}. Batch and length: {', '.join(f'{b} x {n}' for b, n in SIZES)}.", ""]
    lines += ["| model | speed, of the static one's | compilations |", "|---|---|---|"]
    for name in ("bert", "llama"):
        for train in (False, True):
            share, captures = row(name, train)
            lines.append(f"| {name}, {'training' if train else 'inference'} | {share:.2f} | {captures} |")
            print(lines[-1], flush=True)
    if "--write" in sys.argv:
        put("dynamic", "\n".join(lines))


if __name__ == "__main__":
    main()
