"""Single kernels at (8192 x 4096) bfloat16 on a CUDA device: share of the device's copy bandwidth, beside eager. And matrix products and
convolutions with what is computed of them: by the library and a kernel after it, or as one kernel where that was measured to be faster.

    python -m bench.gpu_kernels [--tune] [--products] [--only WORDS] [--write FILE]

The least bytes a program must move over its time on the device, against the bytes of a large copy over its time, both with the calls
launched before the first of them begins. Times by CUDA events, the median of interleaved rounds, on inputs larger than the second-level
cache.
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import stoker

ROWS, COLUMNS = 8192, 4096
ROUNDS, CALLS = 11, 10
SLEEP_CYCLES = 4_000_000
"""Longer than launching the calls takes."""


def _rotary(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * c + torch.cat((-b, a), -1) * s


def _gelu_backward(g: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    d = torch.ops.aten.gelu_backward(g, x + b)
    return d, d.sum(0)


def cases() -> dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]]:
    """Program, inputs, and the number of times a (8192 x 4096) tensor must be read or written."""
    x, y = (torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    w, b = (torch.randn(COLUMNS, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c, s = (torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    labels = torch.randint(COLUMNS, (ROWS,), device="cuda")
    return {
        "copy": (lambda x: x.clone() if not stoker.is_compiling() else x + 0.5, [x], 2),
        "softmax": (lambda x: torch.softmax(x, -1), [x], 2),
        "layer norm": (lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), [x, w, b], 2),
        "RMS norm": (lambda x, w: F.rms_norm(x, (COLUMNS,), w), [x, w], 2),
        "GELU": (lambda x: F.gelu(x), [x], 2),
        "silu times x": (lambda x, y: F.silu(x) * y, [x, y], 3),
        "dropout": (lambda x: F.dropout(x, 0.1), [x], 2),
        "cross entropy": (lambda x, t: F.cross_entropy(x, t), [x, labels], 1),
        "rotary embedding": (_rotary, [x, c, s], 4),
        "bias + GELU backward": (_gelu_backward, [y, x, b], 3),
        "column sum": (lambda x: x.sum(0), [x], 1),
        "transpose": (lambda x: x.t().contiguous(), [x], 2),
    }


def products() -> dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]]:
    """Program, inputs, and the multiplications of numbers it does."""
    found: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {}
    for rows, shared, columns in ((8192, 4096, 4096), (2048, 768, 3072), (512, 1024, 1024), (16, 4096, 14336)):
        x = torch.randn(rows, shared, device="cuda", dtype=torch.bfloat16)
        w, v = (torch.randn(columns, shared, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        b = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
        size, work = f"{rows} x {shared} x {columns}", rows * shared * columns
        found[f"linear, GELU {size}"] = (lambda x, w, b: F.gelu(F.linear(x, w, b)), [x, w, b], work)
        found[f"linear, tanh GELU {size}"] = (
            lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
            [x, w, b],
            work,
        )
        narrow, scale = torch.randint(-99, 99, (columns, shared), device="cuda", dtype=torch.int8), b[:, None] / 99
        found[f"silu, linear {size}"] = (lambda x, w: F.linear(F.silu(x), w), [x, w], work)
        found[f"weights of 8 bits {size}"] = (
            lambda x, w, s: F.linear(x, w.to(x.dtype) * s),
            [x, narrow, scale],
            work,
        )
        found[f"gated {size}"] = (lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), [x, w, v], 2 * work)
    return found | convolutions()


def convolutions() -> dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]]:
    """The same of a convolution, a bias and ReLU, with channels fastest: layers of a ResNet-50 on 32 images."""
    found: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {}
    for channels, columns, high, kernel, step in (
        (256, 64, 56, 1, 1), (64, 256, 56, 1, 1), (64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 256, 28, 3, 2),
        (512, 512, 7, 3, 1), (512, 2048, 7, 1, 1),
    ):  # fmt: skip
        x, w = (
            torch.randn(s, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
            for s in ((32, channels, high, high), (columns, channels, kernel, kernel))
        )
        b, places = torch.randn(columns, device="cuda", dtype=torch.bfloat16), -(-high // step)

        def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, s: int = step, p: int = kernel // 2) -> Any:
            return F.relu(F.conv2d(x, w, b, stride=s, padding=p))

        work = 32 * places * places * columns * channels * kernel * kernel
        found[f"conv {kernel}x{kernel}/{step} {channels} to {columns}, {high}x{high}"] = (program, [x, w, b], work)
    return found


def measure_products(tune: bool) -> dict[str, dict[str, float]]:
    """Microseconds by eager, by the default mode, and with products measured."""
    rows: dict[str, dict[str, float]] = {}
    for name, (program, inputs, work) in products().items():
        ways: dict[str, Callable[..., Any]] = {"eager": program, "stoker": stoker.compile(program, fullgraph=True)}
        if tune:
            ways["tuned"] = stoker.compile(program, options={"autotune": True}, fullgraph=True)
        times: dict[str, list[float]] = {who: [] for who in ways}
        for _ in range(ROUNDS + 1):
            for who, function in ways.items():
                times[who].append(milliseconds(function, inputs))
        rows[name] = {who: sorted(t[1:])[ROUNDS // 2] * 1e3 for who, t in times.items()}
        words = "  ".join(f"{who} {us:7.1f} us ({2e-6 * work / us:4.0f} TFLOP/s)" for who, us in rows[name].items())
        print(f"{name:36} {words}")
        for event in (*stoker.events("tuned"), *stoker.events("improved")):
            print(f"    {event.subject}: {event.reason}")
        stoker.reset()
    return rows


def milliseconds(function: Callable[..., Any], inputs: list[torch.Tensor], *, waiting: bool = False) -> float:
    """Of a call among several; `waiting`: all are launched before the first begins, so that none waits for the host."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if waiting:
        torch.cuda._sleep(SLEEP_CYCLES)
    start.record()
    for _ in range(CALLS):
        function(*inputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--products", action="store_true")
    parser.add_argument("--only", default="", help="measure kernels whose name has these words")
    parser.add_argument("--write")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    rows: dict[str, dict[str, float]] = {}
    size = ROWS * COLUMNS * 2
    source = torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    milliseconds(lambda: target.copy_(source), [])
    copying = sorted(milliseconds(lambda: target.copy_(source), [], waiting=True) for _ in range(ROUNDS))[ROUNDS // 2]
    bandwidth = 2 * size / copying
    print(f"copy: {copying * 1e3:.1f} us, {bandwidth / 1e9:.2f} TB/s")
    a = torch.randn(10, device="cuda")
    compiled = stoker.compile(lambda a: a + a)
    compiled(a)
    for who, function in (("eager", lambda a: a + a), ("stoker", compiled)):
        seconds = sorted(timeit.repeat(lambda f=function: f(a), number=200, repeat=7))[3] / 200
        print(f"a + b on 10 elements, {who}: {seconds * 1e6:.1f} us")
        rows.setdefault("a + b", {})[who] = seconds * 1e6
    with torch.no_grad():
        if chosen.products:
            rows |= measure_products(chosen.tune)
        for name, (program, inputs, passes) in cases().items():
            if chosen.only not in name:
                continue
            compiled = stoker.compile(program, options={"autotune": chosen.tune}, fullgraph=True)
            compiled(*inputs)
            times: dict[str, list[float]] = {"eager": [], "stoker": [], "device": []}
            for _ in range(ROUNDS):
                times["eager"].append(milliseconds(program, inputs))
                times["stoker"].append(milliseconds(compiled, inputs))
                times["device"].append(milliseconds(compiled, inputs, waiting=True))
            found = {who: sorted(t)[ROUNDS // 2] * 1e3 for who, t in times.items()}
            share = passes * size / (found["device"] / 1e3) / bandwidth
            rows[name] = found | {"share": share}
            print(
                f"{name:22} eager {found['eager']:7.1f} us  stoker {found['stoker']:7.1f} us  {share:5.0%} of the copy"
            )
    if chosen.write:
        Path(chosen.write).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
