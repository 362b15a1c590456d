"""CUDA graphs on a CUDA device: eager, eager recorded by hand, stoker without and with recordings, torch.compile's reduce-overhead.

    python -m bench.cudagraphs [--no-rival] [--rounds N] [--together N] [--write FILE] [name ...]
    python -m bench.cudagraphs --tables FILE ...        (results of runs, as tables in docs/benchmarks.md)

Inference in float16; `name-1` is a batch of one, `llama-decode` one token with a static cache. Calls take turns between two sets of
inputs, which lie in different places; who records by hand copies them to where the graph reads them. Beside the times: how many kernels
are in recordings, what kept operators out of them, bytes copied for each replay with inputs copied and followed, which way each graph
runs, and the host's time of a call. One process for each model, of which several (`--together`) compile beside each other and are then
measured one at a time; a round is a few calls between two synchronizations, figures are first quartiles.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench import turns
from bench.gpu import CALLS, MODELS, compiled, facts, made, mean
from bench.report import put
from bench.turns import wait_for_turn

ANCHORS = [
    "bert",
    "gpt2",
    "llama",
    "t5",
    "vit",
    "convnext",
    "resnet50",
    "deberta",
    "whisper",
    "qwen3",
    "swin",
    "gemma2",
]
NAMES = [*ANCHORS, *(f"{name}-1" for name in ANCHORS), "llama-decode"]


Inputs = dict[str, Any]


def prepared(name: str) -> tuple[torch.nn.Module, list[Inputs]]:
    """A model, and two sets of inputs."""
    base, _, form = name.partition("-")
    model, inputs = made(base, False)
    if form == "decode":
        return model, decode(model)
    if form == "1":
        inputs = {key: value[:1].contiguous() for key, value in inputs.items()}
    return model, [inputs, {key: value.flip(-1).contiguous() for key, value in inputs.items()}]


def decode(model: torch.nn.Module) -> list[Inputs]:
    """One token behind 1,024 others."""
    from transformers import StaticCache

    model.config.use_cache = True  # type: ignore[union-attr]  # a model of transformers
    cache = StaticCache(config=model.config, max_cache_len=2048)
    with torch.no_grad():
        model(
            input_ids=torch.full((1, 1024), 7, device="cuda"),
            past_key_values=cache,
            cache_position=torch.arange(1024, device="cuda"),
        )
    place = torch.tensor([1024], device="cuda")
    return [
        {
            "input_ids": torch.full((1, 1), token, device="cuda"),
            "past_key_values": cache,
            "cache_position": place.clone(),
        }
        for token in (7, 8)
    ]


def by_hand(model: torch.nn.Module, inputs: Inputs) -> Callable[..., Any]:
    """Eager in one CUDA graph, as a careful user records it: a call copies the inputs to where the graph reads them."""
    read = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in inputs.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(**read)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = model(**read)

    def replay(**given: Any) -> Any:
        for key, value in given.items():
            if isinstance(value, torch.Tensor):
                read[key].copy_(value)
        graph.replay()
        return result

    return replay


def row_of(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    from stoker import log

    model, sets = prepared(name)
    row: dict[str, Any] = {}
    contestants: dict[str, Callable[..., Any]] = {"eager": model}
    with torch.no_grad():
        for who, engine, mode in (
            ("stoker", "stoker", "default"),
            ("torch.compile", "torch.compile", "reduce-overhead"),
            ("recorded", "stoker", "reduce-overhead"),
        ):
            if engine == "torch.compile" and chosen.no_rival:
                continue
            if who == "recorded":  # how a graph runs is chosen by measuring
                wait_for_turn()
            contestants[who] = compiled(engine, copy.deepcopy(model) if "decode" not in name else model, mode)
            for number in range(8):
                contestants[who](**sets[number % 2])
        try:
            contestants["by hand"] = by_hand(model, sets[0])
        except RuntimeError as error:
            row["by hand"] = str(error).splitlines()[0]
            torch.cuda.synchronize()
        if "decode" not in name:  # there a call depends on those before it
            row["distance"] = max(distance_of(model, contestants["recorded"], inputs) for inputs in sets)
        row |= measured(contestants, sets, chosen.rounds)
    events = log.events("cudagraph")
    row["graphs"] = [
        {"way": c.way, "us": dict(c.microseconds), "kernels": c.kernels, "moving": c.moving, "bytes": dict(c.copied)}
        for c in (e.data for e in events)
        if c is not None
    ]
    row["not recorded"] = sorted({f"{e.subject}: {e.reason}" for e in events if e.data is None})
    detours = {e.location: e.data for e in log.events("improved") if "detour" in (e.reason or "")}
    row["detours taken out"] = sum(sum(d.values()) for d in detours.values())
    row["shares"] = shares(events, set(detours))
    return row


def shares(events: list[Any], with_detours: set[str]) -> dict[str, float]:
    """Of the kernels of all graphs: those in graphs that could be recorded as they were captured, and those that are."""
    kernels = {"before": 0, "after": 0, "all": 0}
    kept_out = {e.location for e in events if e.data is None} | with_detours
    for event in events:
        if event.data is not None:
            kernels["all"] += event.data.kernels
            kernels["before"] += event.data.kernels * (event.location not in kept_out)
            kernels["after"] += event.data.kernels
    return {when: kernels[when] / max(kernels["all"], 1) for when in ("before", "after")}


def distance_of(model: torch.nn.Module, contestant: Any, inputs: Inputs) -> float:
    a, b = contestant(**inputs)[0].double(), model(**inputs)[0].double()
    return float((a - b).norm() / b.norm())


def measured(contestants: dict[str, Callable[..., Any]], sets: list[Inputs], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {who: [] for who in contestants}
    hosts: dict[str, list[float]] = {who: [] for who in contestants}
    for _ in range(rounds):
        for who, contestant in contestants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for number in range(CALLS):
                contestant(**sets[number % 2])
            hosts[who].append((time.perf_counter() - start) * 1e3 / CALLS)
            torch.cuda.synchronize()
            times[who].append((time.perf_counter() - start) * 1e3 / CALLS)
    row = {who: sorted(t)[len(t) // 4] for who, t in times.items()}
    return row | {f"{who} host": sorted(t)[len(t) // 4] for who, t in hosts.items()}


RIVALS = ("eager", "by hand", "stoker", "torch.compile")


def tables(files: list[str]) -> str:
    """Times, and what was recorded how."""
    runs = [json.loads(Path(file).read_text()) for file in files]
    rows = {name: row for run in runs for name, row in run["models"].items()}
    commits = ", ".join(f"{', '.join(run['models'])} at {run['facts']['commit']}" for run in runs)
    given = runs[0]["facts"]
    lines = [
        f"{given['device']}, torch {given['torch']}, Triton {given['triton']}, {given['date']}; {commits}.",
        "",
        "| model | recorded ms | host us | of eager | of eager by hand | of stoker's default | of torch.compile |",
        "|---" * 7 + "|",
    ]
    for name, row in rows.items():
        ratios = " | ".join(_over(row, rival) for rival in RIVALS)
        lines.append(f"| {name} | {row['recorded']:.2f} | {row['recorded host'] * 1e3:.0f} | {ratios} |")
    means = " | ".join(
        f"{mean(found):.2f} (lowest {min(found):.2f})" if (found := _ratios(rows, rival)) else "" for rival in RIVALS
    )
    lines += [f"| geometric mean | | | {means} |", ""]
    lines += [
        "What became of each graph: one for each size and version; `as it is` is one that gains nothing from being recorded.",
        "",
        "| model | kernels in it | runs | us: as it is, copied, followed | bytes a call: copied, followed | left out |",
        "|---" * 6 + "|",
    ]
    for name, row in rows.items():
        for graph in row["graphs"]:
            times = ", ".join(f"{value:.0f}" for value in graph["us"].values())
            counts = ", ".join(f"{value:,}" for value in graph["bytes"].values())
            left = "; ".join(row["not recorded"]) or "nothing"
            lines.append(f"| {name} | {graph['kernels']} | {graph['way']} | {times} | {counts} | {left} |")
    placed = {name: row for name, row in rows.items() if row.get("shares", {}).get("before", 1) < 1}
    lines += [
        "",
        "Share of kernels that could be recorded in the graphs as captured, and with values of the processor placed on the device:",
    ]
    lines += [
        f"{name} {row['shares']['before']:.0%} and {row['shares']['after']:.0%} ({row['detours taken out']} operators gone)"
        for name, row in placed.items()
    ]
    others = f"{sum('shares' in row for row in rows.values()) - len(placed)} {'others' if placed else 'of them'}"
    lines.append(f"In {others} nothing was in the way.")
    return "\n".join(lines)


def _over(row: dict[str, Any], rival: str) -> str:
    value = row.get(rival)
    return f"{value / row['recorded']:.2f}" if isinstance(value, float) else "cannot be" if value else ""


def _ratios(rows: dict[str, dict[str, Any]], rival: str) -> list[float]:
    return [row[rival] / row["recorded"] for row in rows.values() if isinstance(row.get(rival), float)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--tables", nargs="+", help="files of results")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--together", type=int, default=1, help="processes that compile beside each other")
    parser.add_argument("--write")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.mode, chosen.rival_mode = "reduce-overhead", "reduce-overhead"
    if chosen.tables:
        put("cudagraphs", tables(chosen.tables))
        return
    if chosen.one:
        print(json.dumps(row_of(chosen.names[0], chosen)), flush=True)
        os._exit(0)  # a recording of eager's that failed leaves torch in a state in which the interpreter cannot end
    rows: dict[str, Any] = {}
    flags = ["--one", f"--rounds={chosen.rounds}", *["--no-rival"] * chosen.no_rival]
    commands = {name: ["-m", "bench.cudagraphs", name, *flags] for name in chosen.names}
    for name, row in turns.rows(commands, chosen.together):
        if isinstance(row, str):
            print(name, "failed:", row, flush=True)
            continue
        rows[name] = row
        rivals = [r for r in RIVALS if isinstance(row.get(r), float)]
        words = "  ".join(f"x{row[r] / row['recorded']:.2f} of {r}" for r in rivals)
        print(f"{name:12} {row['recorded']:.3f} ms, host {row['recorded host'] * 1e3:.0f} us  {words}", flush=True)
        if chosen.write:
            Path(chosen.write).write_text(json.dumps({"facts": facts(chosen), "models": rows}, indent=1) + "\n")
    for rival in RIVALS:
        if ratios := _ratios(rows, rival):
            print(f"geometric mean: x{mean(ratios):.3f} of {rival}, lowest x{min(ratios):.2f}")


if __name__ == "__main__":
    assert set(ANCHORS) <= set(MODELS)
    main()
