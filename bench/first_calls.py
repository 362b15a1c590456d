"""Seconds of first calls of timm's models with an empty cache, each in a process of its own, two images of at most 224 points a side.

python -m bench.first_calls [--train] [--patience seconds] name ...

Of the first call and the calls until kernels are built, the seconds of the clock; of all of these, the seconds of a processor, the process's own and
those of the C++ compiler, which others at work do not change as much.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from bench.torchvision_stub import stub_torchvision

if TYPE_CHECKING:
    from stoker.log import Event

LARGEST_SIDE = 224


def first(name: str, train: bool, patience: float) -> str:
    """Measure in this process; a line for the terminal."""
    stub_torchvision()
    import timm

    import stoker

    torch.manual_seed(0)
    model = timm.create_model(name).train(train)
    side = min(model.default_cfg["input_size"][1], LARGEST_SIDE)
    images = torch.randn(2, 3, side, side)

    def seconds(function: torch.nn.Module) -> float:
        start = time.perf_counter()
        with torch.set_grad_enabled(train):
            result = function(images)
        if train:
            result.sum().backward()
        return time.perf_counter() - start

    seconds(model)
    eager = seconds(model)
    compiled = stoker.compile(model, options={"patience": patience})
    own, built = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    began, meanwhile = time.perf_counter(), 0
    line = f"{name:20} first {seconds(compiled):.1f} s"
    own = time.process_time() - own
    while waiting(stoker.events("patience")):
        seconds(compiled)
        meanwhile += 1
    if meanwhile:
        line += f", built after {time.perf_counter() - began:.1f} s and {meanwhile} more calls"
    done = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiler = done.ru_utime + done.ru_stime - built.ru_utime - built.ru_stime
    return f"{line}, then {seconds(compiled):.2f} s, eager {eager:.2f} s; of a processor: first call {own:.1f}, compiler {compiler:.1f}"


def waiting(events: Sequence[Event]) -> bool:
    """Does a graph run operator by operator still? An event said so; another says when kernels have taken over."""
    begun = sum("until its kernels are built" in event.subject for event in events)
    return 2 * begun > len(events)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--patience", type=float, default=3.0, help="the option; inf waits")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(first(chosen.names[0], chosen.train, chosen.patience), flush=True)
        return
    for name in chosen.names:
        with tempfile.TemporaryDirectory() as cache:
            flags = ["--one", f"--patience={chosen.patience}", *["--train"] * chosen.train]
            environment = os.environ | {"STOKER_CACHE": cache}
            subprocess.run([sys.executable, "-m", "bench.first_calls", name, *flags], check=True, env=environment)


if __name__ == "__main__":
    main()
