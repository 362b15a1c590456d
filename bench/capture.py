"""What capture costs, beside torch.compile, in one run: import, first call, each call, guards.

    python bench/capture.py            measures, prints, writes bench/results/capture.json and the table in docs/benchmarks.md

Each first-call figure comes from fresh processes; per-call figures are interleaved in one process. Medians and quartiles.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "capture.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- capture -->", "<!-- /capture -->"

FIRST_CALL = """
import time, torch
from transformers import BertConfig, BertModel
torch.manual_seed(0)
model = BertModel(BertConfig(vocab_size=1000, hidden_size=32, num_hidden_layers=12, num_attention_heads=4, intermediate_size=64)).eval()
tokens = torch.randint(5, 900, (2, 16))
with torch.no_grad():
    model(input_ids=tokens)
    {compile}
    started = time.perf_counter()
    model(input_ids=tokens)
    print(time.perf_counter() - started)
"""
STOKER = "import stoker; model = stoker.compile(model, backend='eager')"
PEER = "model = torch.compile(model, backend='eager'); import torch._dynamo"


def fresh(program: str) -> float:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def import_seconds(extra: str) -> float:
    return fresh(f"import torch, time; t = time.perf_counter(); {extra}; print(time.perf_counter() - t)")


def interleaved(functions: dict[str, Callable[[], object]], number: int, rounds: int = 21) -> dict[str, list[float]]:
    """Microseconds a call, one figure a round, the functions taking turns."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            for _ in range(number):
                function()
            found[name].append((time.perf_counter() - started) / number * 1e6)
    return found


def per_call() -> dict[str, list[float]]:
    import torch

    import stoker

    def add(a, b):
        return a + b

    a, b = torch.randn(10), torch.randn(10)
    ours, theirs = stoker.compile(add, backend="eager"), torch.compile(add, backend="eager")
    ours(a, b), theirs(a, b)
    return interleaved(
        {"plain": lambda: add(a, b), "stoker": lambda: ours(a, b), "torch.compile": lambda: theirs(a, b)}, 5000
    )


def guards() -> dict[str, list[float]]:
    """A 12-layer BERT whose graph is replaced by its stored result: what is left is guards and Python around."""
    import torch
    from transformers import BertConfig, BertModel

    import stoker

    def stored(graph_module, example_inputs):
        result = graph_module(*example_inputs)
        return lambda *inputs: result

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=1000, **shape)
    ours = stoker.compile(BertModel(config).eval(), backend=stored)
    theirs = torch.compile(BertModel(config).eval(), backend=stored)
    tokens = torch.randint(5, 900, (2, 16))
    with torch.no_grad():
        ours(input_ids=tokens), theirs(input_ids=tokens)
        compiled = ours.__call__
        function = compiled.__wrapped__.__func__
        (entry,) = compiled.compiler.entries(function.__code__)
        bound = [compiled.__self__, (), {"input_ids": tokens}]
        assert isinstance(entry.guards.check(bound, function), tuple)
        return interleaved(
            {
                "stoker guards": lambda: entry.guards.check(bound, function),
                "stoker call": lambda: ours(input_ids=tokens),
                "torch.compile call": lambda: theirs(input_ids=tokens),
            },
            500,
        )


def summary(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "low": low, "high": high}


def main() -> None:
    measured: dict[str, object] = {
        "machine": f"{platform.machine()}, {_cpu()}, Python {platform.python_version()}, torch {_torch()}",
        "import torch, seconds": summary(
            [
                fresh("import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t)")
                for _ in range(5)
            ]
        ),
        "import stoker, seconds": summary([import_seconds("import stoker") for _ in range(5)]),
        "first call of 12-layer BERT, stoker, seconds": summary(
            [fresh(FIRST_CALL.format(compile=STOKER)) for _ in range(3)]
        ),
        "first call of 12-layer BERT, torch.compile, seconds": summary(
            [fresh(FIRST_CALL.format(compile=PEER)) for _ in range(3)]
        ),
    }
    for name, values in per_call().items():
        measured[f"a + b on 10 elements, {name}, us"] = summary(values)
    for name, values in guards().items():
        measured[f"12-layer BERT, {name}, us"] = summary(values)
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
    table = render(measured)
    print(table)
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")


def render(measured: dict) -> str:
    lines = [
        f"Machine: {measured['machine']}. Back end `eager` on both sides.",
        "",
        "| what | median | quartiles |",
        "|---|---|---|",
    ]
    for name, figures in measured.items():
        if isinstance(figures, dict):
            lines.append(f"| {name} | {figures['median']:.3g} | {figures['low']:.3g} to {figures['high']:.3g} |")
    return "\n".join(lines)


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "?")
    import os

    return f"{os.cpu_count()} cores of {model}"


def _torch() -> str:
    import torch

    return torch.__version__


if __name__ == "__main__":
    main()
