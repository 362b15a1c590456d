"""Where the time of a compiled model goes: each plan runs step by step in Python, and its steps are timed.

python tools/profile_plan.py [--train] [--top N] model          (the models of bench/architectures.py)
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import stoker
from bench.models import made, step
from stoker import pipeline
from stoker.codegen import host
from stoker.schedule.step import Library, Run, step_text

spent: dict[tuple[int, str], float] = defaultdict(float)
calls: dict[tuple[int, str], int] = defaultdict(int)
plans: list[Any] = []


def timed_executor(plan: Any, layouts: Any, addresses: list[int]) -> Any:
    """A stand-in for the executor."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    kernels = [kind(address) for address in addresses]
    number = len(plans)
    plans.append(plan)
    plain = host._run

    def run(step: Any, memory: Any, sizes: Any, kernels: Any) -> None:
        start = time.thread_time()
        plain(step, memory, sizes, kernels)
        match step:
            case Run():
                key = f"kernel {step.kernel} " + " ".join(plan.origins[step.kernel])
            case Library():
                key = str(step.operator) + " " + step_text(step).split("(", 1)[1]
            case _:
                key = type(step).__name__
        spent[number, key] += time.thread_time() - start
        calls[number, key] += 1

    program = host.host_program(plan, [lambda p, s, k=k: k(ctypes.addressof(p), ctypes.addressof(s)) for k in kernels])

    def call(*inputs: Any) -> Any:
        host._run = run  # type: ignore[assignment]
        try:
            return program(*inputs)
        finally:
            host._run = plain

    return call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--top", type=int, default=30)
    chosen = parser.parse_args()
    pipeline.executor = timed_executor
    model, inputs = made(chosen.name, chosen.train, 1)
    compiled = stoker.compile(model)
    step(compiled, inputs, chosen.train)
    spent.clear()
    calls.clear()
    rounds = 10
    for _ in range(rounds):
        step(compiled, inputs, chosen.train)
    total = sum(spent.values())
    print(
        f"{total / rounds * 1e3:.2f} ms in steps; kernels {[len(p.kernels) for p in plans]}, steps {[len(p.steps) for p in plans]}"
    )
    kinds: dict[str, float] = defaultdict(float)
    for (number, key), seconds in spent.items():
        kinds[f"plan {number} {key.split('(')[0].split(' ')[0]}"] += seconds
    for kind, seconds in sorted(kinds.items(), key=lambda e: -e[1])[:25]:
        print(f"{seconds / rounds * 1e3:8.3f} ms  {kind}")
    print()
    for (number, key), seconds in sorted(spent.items(), key=lambda e: -e[1])[: chosen.top]:
        count = calls[number, key] // rounds
        print(f"{seconds / rounds * 1e3:8.3f} ms  {count:3}x  plan {number} {key[:220]}")


if __name__ == "__main__":
    main()
