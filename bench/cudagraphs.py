"""CUDA graphs on a CUDA device: eager, eager recorded by hand, stoker without and with recordings, torch.compile's reduce-overhead.

    python -m bench.cudagraphs [--no-rival] [--rounds N] [--write FILE] [name ...]

Inference in float16; `name-1` is a batch of one, `llama-decode` one token with a static cache. Beside the times: how many kernels are
inside recordings, bytes copied for each replay with inputs copied and followed, which graphs were recorded, and the host's time of a
replay. One process for each model; a round is a few calls between two synchronizations, figures are first quartiles.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.gpu import CALLS, MODELS, compiled, facts, made, mean

ANCHORS = ["bert", "gpt2", "llama", "t5", "vit", "convnext", "resnet50", "deberta", "whisper", "qwen3", "swin"]
NAMES = [*ANCHORS, *(f"{name}-1" for name in ANCHORS), "llama-decode"]


def prepared(name: str) -> tuple[torch.nn.Module, Callable[[Any], Any]]:
    """A model, and one call of it or of a compiled form."""
    base, _, form = name.partition("-")
    model, inputs = made(base, False)
    if form == "1":
        inputs = {key: value[:1].contiguous() for key, value in inputs.items()}
    if form == "decode":
        return model, decode(model)
    return model, lambda m: m(**inputs)[0]


def decode(model: torch.nn.Module) -> Callable[[Any], Any]:
    """One token behind 1,024 others."""
    from transformers import StaticCache

    model.config.use_cache = True  # type: ignore[union-attr]  # a model of transformers
    cache = StaticCache(config=model.config, max_cache_len=2048)
    token = torch.full((1, 1), 7, device="cuda")
    place = torch.tensor([1024], device="cuda")

    def call(m: Any) -> Any:
        return m(input_ids=token, past_key_values=cache, cache_position=place)[0]

    with torch.no_grad():
        model(
            input_ids=torch.full((1, 1024), 7, device="cuda"),
            past_key_values=cache,
            cache_position=torch.arange(1024, device="cuda"),
        )
    return call


def by_hand(model: torch.nn.Module, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Eager in one CUDA graph, as a careful user records it: inputs where they are."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call(model)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(model)

    def replay(_: Any) -> Any:
        graph.replay()
        return result

    return replay


def row_of(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    from stoker import log

    model, call = prepared(name)
    row: dict[str, Any] = {}
    contestants: dict[str, tuple[Any, Callable[[Any], Any]]] = {"eager": (model, call)}
    with torch.no_grad():
        for who, engine, mode in (
            ("stoker", "stoker", "default"),
            ("recorded", "stoker", "reduce-overhead"),
            ("torch.compile", "torch.compile", "reduce-overhead"),
        ):
            if engine == "torch.compile" and chosen.no_rival:
                continue
            contestants[who] = (compiled(engine, copy.deepcopy(model) if "decode" not in name else model, mode), call)
            for _ in range(8):
                contestants[who][1](contestants[who][0])
        try:
            contestants["by hand"] = (model, by_hand(model, call))
        except RuntimeError as error:
            row["by hand"] = str(error).splitlines()[0]
            torch.cuda.synchronize()
        row["distance"] = distance_of(model, contestants["recorded"][0], call)
        row |= measured(contestants, chosen.rounds)
    choices = [e.data for e in log.events("cudagraph") if e.data is not None]
    row["graphs"] = [{"way": c.way, "us": dict(c.microseconds), "kernels": c.kernels} for c in choices]
    row["not recorded"] = sorted({e.reason or e.subject for e in log.events("cudagraph") if e.data is None})
    return row


def distance_of(model: torch.nn.Module, contestant: Any, call: Callable[[Any], Any]) -> float:
    a, b = call(contestant).double(), call(model).double()
    return float((a - b).norm() / b.norm())


def measured(contestants: dict[str, tuple[Any, Callable[[Any], Any]]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {who: [] for who in contestants}
    hosts: dict[str, list[float]] = {who: [] for who in contestants}
    for _ in range(rounds):
        for who, (contestant, call) in contestants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call(contestant)
            hosts[who].append((time.perf_counter() - start) * 1e3 / CALLS)
            torch.cuda.synchronize()
            times[who].append((time.perf_counter() - start) * 1e3 / CALLS)
    row = {who: sorted(t)[len(t) // 4] for who, t in times.items()}
    return row | {f"{who} host": sorted(t)[len(t) // 4] for who, t in hosts.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--write")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.mode, chosen.rival_mode = "reduce-overhead", "reduce-overhead"
    if chosen.one:
        print(json.dumps(row_of(chosen.names[0], chosen)))
        return
    rows: dict[str, Any] = {}
    for name in chosen.names:
        flags = [name, "--one", f"--rounds={chosen.rounds}", *["--no-rival"] * chosen.no_rival]
        run = subprocess.run(
            [sys.executable, "-m", "bench.cudagraphs", *flags], capture_output=True, text=True, check=False
        )
        if run.returncode:
            print(name, "failed:", "\n".join(run.stderr.strip().splitlines()[-12:]), flush=True)
            continue
        row = rows[name] = json.loads(run.stdout.strip().splitlines()[-1])
        rivals = [r for r in ("eager", "by hand", "stoker", "torch.compile") if isinstance(row.get(r), float)]
        words = "  ".join(f"x{row[r] / row['recorded']:.2f} of {r}" for r in rivals)
        print(f"{name:12} {row['recorded']:.3f} ms, host {row['recorded host'] * 1e3:.0f} us  {words}", flush=True)
        if chosen.write:
            Path(chosen.write).write_text(json.dumps({"facts": facts(chosen), "models": rows}, indent=1) + "\n")
    for rival in ("eager", "by hand", "stoker", "torch.compile"):
        ratios = [row[rival] / row["recorded"] for row in rows.values() if isinstance(row.get(rival), float)]
        if ratios:
            print(f"geometric mean: x{mean(ratios):.3f} of {rival}, lowest x{min(ratios):.2f}")


if __name__ == "__main__":
    assert set(ANCHORS) <= set(MODELS)
    main()
