"""Whole models: eager, stoker and torch.compile, interleaved, one process per model, cold and warm.

    python -m bench.models [--train] [--threads N] [--rounds N] [--write] [name ...]

Cold is a first call with empty caches, warm the first call of another process with the caches of the first. `--write` keeps
the results in bench/results/ (models-inference.json, models-training.json) and writes the table and plot of docs/benchmarks.md from them.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch

from bench.architectures import MODELS

CONTESTANTS = ("eager", "stoker", "torch.compile")


def step(model: torch.nn.Module, inputs: dict[str, torch.Tensor], train: bool) -> Any:
    """One call, with gradients when training."""
    if not train:
        with torch.no_grad():
            return model(**inputs)
    out = model(**inputs)
    values = [out] if isinstance(out, torch.Tensor) else out.values()
    loss = sum(v.float().square().mean() for v in values if isinstance(v, torch.Tensor) and v.is_floating_point())
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None
    return None


def compiled(who: str, model: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
    if who == "stoker":
        import stoker

        return stoker.compile(model, options=options or None)
    return torch.compile(model) if who == "torch.compile" else model  # type: ignore[return-value]


def made(name: str, train: bool, threads: int) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model, inputs = MODELS[name]()
    model.train(train)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, inputs


def first(name: str, who: str, train: bool, threads: int) -> dict[str, float]:
    """Seconds of a first call, and the largest resident size in megabytes, of one contestant in this process."""
    model, inputs = made(name, train, threads)
    contestant = compiled(who, model, {})
    start = time.perf_counter()
    step(contestant, inputs, train)
    took = time.perf_counter() - start
    for _ in range(3):
        step(contestant, inputs, train)
    return {"first": took, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def steady(name: str, train: bool, threads: int, rounds: int, rival: bool, options: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of a call of each contestant: the first quartile of interleaved rounds."""
    model, inputs = made(name, train, threads)
    present = [who for who in CONTESTANTS if rival or who != "torch.compile"]
    contestants = {who: compiled(who, copy.deepcopy(model), options) for who in present}
    for contestant in contestants.values():
        step(contestant, inputs, train)
        step(contestant, inputs, train)
    times: dict[str, list[float]] = {who: [] for who in contestants}
    for _ in range(rounds):
        for who, contestant in contestants.items():
            start = time.perf_counter()
            step(contestant, inputs, train)
            times[who].append((time.perf_counter() - start) * 1e3)
    return {who: sorted(t)[len(t) // 4] for who, t in times.items()}


def child(arguments: list[str], cache: str) -> dict[str, float] | str:
    """Run this file again in a process of its own, with its caches in a folder."""
    environment = os.environ | {"STOKER_CACHE": f"{cache}/stoker", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    command = [sys.executable, "-m", "bench.models", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        return run.stderr.strip().splitlines()[-1][:300] if run.stderr.strip() else f"exit {run.returncode}"
    return json.loads(run.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def model_row(name: str, chosen: argparse.Namespace) -> dict[str, float] | str:
    """All figures of one model."""
    flags = [f"--threads={chosen.threads}", f"--rounds={chosen.rounds}", f"--options={chosen.options}"]
    flags += ["--train"] * chosen.train + ["--no-rival"] * chosen.no_rival
    row: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        if chosen.cold:
            for who in CONTESTANTS:
                if who == "torch.compile" and chosen.no_rival:
                    continue
                for when in ("cold", "warm"):
                    found = child([name, f"--first={who}", *flags], cache)
                    if isinstance(found, str):
                        return found
                    row[f"{who} {when}"] = found["first"]
                    row[f"{who} peak"] = found["peak"]
        found = child([name, "--steady", *flags], cache)
        return found if isinstance(found, str) else row | found


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-rival", action="store_true", help="without torch.compile")
    parser.add_argument("--cold", action="store_true", help="first calls too")
    parser.add_argument("--options", default="{}", help="stoker's options, as JSON")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--steady", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.first:
        print(json.dumps(first(chosen.names[0], chosen.first, chosen.train, chosen.threads)))
        return
    if chosen.steady:
        options = json.loads(chosen.options)
        found = steady(chosen.names[0], chosen.train, chosen.threads, chosen.rounds, not chosen.no_rival, options)
        print(json.dumps(found))
        return
    rows = {}
    for name in chosen.names:
        row = model_row(name, chosen)
        if isinstance(row, str):
            print(f"{name:14} failed: {row}", flush=True)
            continue
        rows[name] = row
        words = "  ".join(f"{key} {value:.2f}" for key, value in row.items())
        words += "".join(f"  x{row[r] / row['stoker']:.2f} of {r}" for r in ("eager", "torch.compile") if r in row)
        print(f"{name:14} {words}", flush=True)
    for rival in ("eager", "torch.compile"):
        ratios = [row[rival] / row["stoker"] for row in rows.values() if rival in row]
        if ratios:
            print(f"geometric mean: x{mean(ratios):.3f} of {rival}")
    if chosen.write:
        from bench.report import keep

        keep("training" if chosen.train else "inference", rows)


if __name__ == "__main__":
    main()
