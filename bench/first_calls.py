"""Seconds of first calls of timm's models with an empty cache, each in a process of its own, two images of at most 224 points a side.

python -m bench.first_calls [--train] name ...
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

import torch

from bench.torchvision_stub import stub_torchvision

LARGEST_SIDE = 224


def first(name: str, train: bool) -> str:
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
    compiled = stoker.compile(model)
    return f"{name:20} first {seconds(compiled):.1f} s, then {seconds(compiled):.2f} s, eager {eager:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(first(chosen.names[0], chosen.train), flush=True)
        return
    for name in chosen.names:
        with tempfile.TemporaryDirectory() as cache:
            flags = ["--one", *["--train"] * chosen.train]
            environment = os.environ | {"STOKER_CACHE": cache}
            subprocess.run([sys.executable, "-m", "bench.first_calls", name, *flags], check=True, env=environment)


if __name__ == "__main__":
    main()
