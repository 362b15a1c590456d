"""An optimizer step over the parameters of a Llama of 1.2 billion, on a CUDA device: compiled, beside torch's own ways.

    python -m bench.gpu_optimizer [--dtype float32|bfloat16] [--layers N] [--rounds N] [--graphs] [--write FILE]

AdamW reads parameter, gradient and both moments, and writes all but the gradient: the least bytes over the time, against those of a large copy.
`fused` is torch's kernel for many tensors; `foreach` its default, an operator after the other; `stoker` the compiled step of the default; with
`--graphs` also that of `capturable=True` in the mode "reduce-overhead". Times by CUDA events, medians of interleaved rounds; host: until the call
returns, with the device idle before it. Distance: of the parameters after all rounds from those of `fused`, as a share of their size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import stoker
from stoker.runtime.device import elapsed

HIDDEN, KEYS, INNER, WORDS = 2048, 512, 8192, 128256
CALLS = 3


def shapes(layers: int) -> list[tuple[int, ...]]:
    """Of a Llama with 16 layers, 32 heads and 8 of keys, and one matrix for words in and out."""
    layer = [(HIDDEN, HIDDEN), (KEYS, HIDDEN), (KEYS, HIDDEN), (HIDDEN, HIDDEN)]
    layer += [(INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER), (HIDDEN,), (HIDDEN,)]
    return [(WORDS, HIDDEN), *layer * layers, (HIDDEN,)]


class Way:
    """An optimizer over parameters of its own; gradients are shared by all ways."""

    def __init__(self, start: list[torch.Tensor], gradients: list[torch.Tensor], **how: Any) -> None:
        self.parameters = [torch.nn.Parameter(t.clone()) for t in start]
        for parameter, gradient in zip(self.parameters, gradients):
            parameter.grad = gradient
        self.optimizer = torch.optim.AdamW(self.parameters, 1e-3, **how)
        self.step: Callable[[], Any] = self.optimizer.step
        self.milliseconds: list[float] = []
        self.host: list[float] = []

    def measure(self) -> None:
        torch.cuda.synchronize()
        started = time.perf_counter()
        self.step()
        self.host.append((time.perf_counter() - started) * 1e3)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(CALLS):
            self.step()
        end.record()
        end.synchronize()
        self.milliseconds.append(start.elapsed_time(end) / CALLS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--write")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    dtype = getattr(torch, chosen.dtype)
    start = [torch.randn(s, device="cuda").to(dtype) for s in shapes(chosen.layers)]
    gradients = [torch.randn_like(t) for t in start]
    ways = {"fused": {"fused": True}, "foreach": {"foreach": True}, "stoker": {"foreach": True}}
    ways |= {"stoker, graphs": {"foreach": True, "capturable": True}} if chosen.graphs else {}
    made = {name: Way(start, gradients, **how) for name, how in ways.items()}
    for name, way in made.items():
        way.step()  # makes the moments
        if name.startswith("stoker"):
            way.step = stoker.compile(way.optimizer.step, mode="reduce-overhead" if "graphs" in name else None)
        began = time.perf_counter()
        for _ in range(8 if "graphs" in name else 2):
            way.step()
        torch.cuda.synchronize()
        print(f"{name}: {time.perf_counter() - began:.1f} s for the first calls")
    for event in (*stoker.events("compiled"), *stoker.events("backend"), *stoker.events("break")):
        print(f"    {event.subject} {event.reason}")
    copied = max(start, key=torch.numel)
    target = torch.empty_like(copied)
    copying = [elapsed(lambda: target.copy_(copied)) for _ in range(5)]
    bandwidth = 2 * copied.nbytes / min(copying)
    for _ in range(chosen.rounds):
        for way in made.values():
            way.measure()
    size = 7 * sum(t.nbytes for t in start)
    rows: dict[str, dict[str, float]] = {}
    print(f"{size / 1e9:.1f} GB to move, a copy moves {bandwidth / 1e9:.2f} TB/s")
    for name, way in made.items():
        while int(way.optimizer.state[way.parameters[0]]["step"]) < 1 + 8 + chosen.rounds * (CALLS + 1):
            way.step()
        ms, host = statistics.median(way.milliseconds), statistics.median(way.host)
        distance = _distance(way.parameters, made["fused"].parameters)
        rows[name] = {"ms": ms, "host_ms": host, "share": size / ms / bandwidth, "distance": distance}
        words = f"{size / ms / 1e9:5.2f} TB/s, {size / ms / bandwidth:4.0%} of the copy, host {host:6.2f} ms"
        print(f"{name:16} {ms:7.3f} ms, {words}, distance {distance:.1e}")
    if chosen.write:
        Path(chosen.write).write_text(json.dumps({"dtype": chosen.dtype, "rows": rows}, indent=1) + "\n")


def _distance(mine: list[torch.nn.Parameter], theirs: list[torch.nn.Parameter]) -> float:
    with torch.no_grad():
        apart = sum(float((a - b).float().square().sum()) for a, b in zip(mine, theirs))
        return float((apart / sum(float(b.float().square().sum()) for b in theirs)) ** 0.5)


if __name__ == "__main__":
    main()
