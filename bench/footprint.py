"""Where the memory of a process goes: eager beside stoker, one process each, first with packed weights and then without.

    python -m bench.footprint [--train] [--threads N] [--write] [name ...]

All figures are megabytes.
Process: the largest resident size after four calls. Compiler: what importing it adds to the resident size. Compiling: what
the first call adds beside packed weights and the call's own tensors, as far as the resident size tells; for eager this is
what the libraries take at their first call. Packed: what making the kept weights adds. Tensors: the most that torch allocates
at once in a later call, as the profiler reports each allocation and free; the arena is let go before, so that it counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.models import made, step

CONTESTANTS: dict[str, dict[str, Any] | None] = {"eager": None, "stoker": {}, "stoker, packing off": {"packing": False}}
NAMES = ["mlp", "bert", "gpt2", "resnet50"]


def resident() -> float:
    """Megabytes in memory at present."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def compiled(model: torch.nn.Module, options: dict[str, Any], packed: list[float]) -> torch.nn.Module:
    """Compile, and note what each preparation of kept weights adds."""
    import stoker
    from stoker import pipeline

    usual = pipeline.preparer

    def watched(frozen: Any) -> Callable[..., Any]:
        prepare = usual(frozen)

        def call(*weights: torch.Tensor) -> Any:
            before = resident()
            kept = prepare(*weights)
            packed.append(resident() - before)
            return kept

        return call

    pipeline.preparer = watched
    return stoker.compile(model, options=options)


def tensors(call: Callable[[], Any]) -> float:
    """Megabytes that torch allocates at once during a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    present = highest = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        present += event.nbytes()
        highest = max(highest, present)
    return highest / 1e6


def measure(name: str, who: str, train: bool, threads: int) -> dict[str, float]:
    """The figures of one contestant, in this process."""
    model, inputs = made(name, train, threads)
    found = {"compiler": 0.0, "packed": 0.0}
    packed: list[float] = []
    options = CONTESTANTS[who]
    start = resident()
    if options is not None:
        model = compiled(model, options, packed)
        found["compiler"] = resident() - start
    before = resident()
    step(model, inputs, train)
    found["packed"] = sum(packed)
    found["first"] = resident() - before
    for _ in range(3):
        step(model, inputs, train)
    found["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    if options is not None:
        from stoker import _C

        _C.release_arenas()
    found["tensors"] = tensors(lambda: step(model, inputs, train))
    found["compiling"] = max(found.pop("first") - found["packed"], 0.0)
    return found


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Markdown."""
    kinds = ("process", "compiler", "compiling", "packed", "tensors")
    lines = ["| model | | " + " | ".join(kinds) + " |", "|---" * (2 + len(kinds)) + "|"]
    for name, rows in found.items():
        for who, row in rows.items():
            lines.append(f"| {name} | {who} | " + " | ".join(f"{row[k]:.0f}" for k in kinds) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--who", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.who:
        print(json.dumps(measure(chosen.names[0], chosen.who, chosen.train, chosen.threads)))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in chosen.names:
        for who in list(CONTESTANTS)[: 2 if chosen.train else 3]:
            flags = [f"--who={who}", f"--threads={chosen.threads}", *["--train"] * chosen.train]
            command = [sys.executable, "-m", "bench.footprint", name, *flags]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            found.setdefault(name, {})[who] = json.loads(run.stdout.strip().splitlines()[-1])
            print(name, who, {k: round(v, 1) for k, v in found[name][who].items()}, flush=True)
    print(table(found))
    if chosen.write:
        from bench.report import RESULTS, machine, put

        kind = "footprint-training" if chosen.train else "footprint"
        (RESULTS / f"{kind}.json").write_text(json.dumps({"machine": machine(), "rows": found}, indent=1) + "\n")
        put(kind, f"Machine: {machine()}.\n\n{table(found)}")


if __name__ == "__main__":
    main()
