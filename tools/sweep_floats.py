"""Every float argument of OpInfo's samples given three values in turn: how often is the call compiled?

    python tools/sweep_floats.py [--only NAME] [--samples 12]

Writes docs/coverage/floats.md. A float that changes becomes a number of the graph on its second value; a third compilation says that
the operator wants a plain float. Captured only (back end eager): what varies is decided there. Values are compared with eager's.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("STOKER_PATIENCE", "inf")  # kernels are what is compared

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]
stoker = importlib.import_module("stoker")
sweep = importlib.import_module("tools.sweep_operators")

Place = tuple[str, int | str]
CHANGES: tuple[Callable[[float], float], ...] = (lambda v: v, lambda v: v * 0.9 + 0.013, lambda v: v * 0.8 + 0.027)
"""Three values, not far from the one that a sample has: what is a probability stays one."""


def places_of(sample: Any) -> Iterator[Place]:
    """The plain floats among a sample's arguments, and the defaults are not looked for."""
    for index, value in enumerate(sample.args):
        if type(value) is float and value == value and abs(value) != float("inf"):
            yield "args", index
    for name, value in sample.kwargs.items():
        if type(value) is float and value == value and abs(value) != float("inf"):
            yield "kwargs", name


def given(sample: Any, place: Place, change: Callable[[float], float]) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = sweep.map_tensors(sweep.copy_of, [[sample.input, *sample.args], dict(sample.kwargs)])
    kind, where = place
    if kind == "args":
        args[1 + where] = change(args[1 + where])
    else:
        kwargs[where] = change(kwargs[where])
    return args, kwargs


def judge(function: Any, sample: Any, place: Place) -> str:
    """'' if two compilations served; what else became of it; 'skip' where eager refuses a value."""

    def program(args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        expected = []
        for change in CHANGES:
            torch.manual_seed(0)
            expected.append(program(*given(sample, place, change)))
    except Exception:  # noqa: BLE001 what eager refuses is no sample
        return "skip"
    stoker.reset()
    stoker.log.clear()
    compiled = stoker.compile(program, backend="eager")
    for change, wanted in zip(CHANGES, expected):
        torch.manual_seed(0)
        try:
            found = compiled(*given(sample, place, change))
        except Exception as error:  # noqa: BLE001 the sweep reports whatever fails
            return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        pairs = zip(sweep.tensors_in(found), sweep.tensors_in(wanted), strict=True)
        if wrong := [w for a, b in pairs if (w := sweep.unequal(a.detach(), b.detach(), False))]:
            return f"differs: {wrong[0]}"
    captured = len(stoker.events("captured"))
    if captured <= 2:
        return ""
    return f"{captured} compilations" if not stoker.events("break") else "a break"


def rows(only: str | None, samples: int) -> Iterator[tuple[str, str, str]]:
    """Operator, argument, outcome."""
    for name, op in sweep.operators(torch.float32):
        if only and op.name != only:
            continue
        try:
            drawn = list(itertools.islice(op.sample_inputs("cpu", torch.float32), samples))
        except Exception:  # noqa: BLE001 some samples need libraries that are not installed
            continue
        seen: dict[Place, str] = {}
        for sample in drawn:
            for place in places_of(sample):
                if seen.get(place, "skip") == "skip":
                    seen[place] = judge(op.op, copy.copy(sample), place)
        for (kind, where), outcome in seen.items():
            yield name, f"argument {where + 2}" if isinstance(where, int) and kind == "args" else str(where), outcome


PAGE = """# Floats that change

Written by `python tools/sweep_floats.py`: each plain float among the arguments of OpInfo's samples (float32, the first sample that has
it) is given three values in turn. Two compilations serve all values where the float becomes a number of the graph. What asks for a plain float is compiled
for each value.

Run at commit {commit}.

{total} arguments: {good} compiled at most twice, {rest} otherwise{skipped}.

| operator | argument | what becomes of it |
|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--samples", type=int, default=12)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for row in rows(arguments.only, arguments.samples):
        found.append(row)
        if row[2] not in ("", "skip"):
            print(*row, flush=True)
    run = [row for row in found if row[2] != "skip"]
    rest = [row for row in run if row[2]]
    print(f"{len(run)} arguments, {len(rest)} remain")
    if arguments.only:
        return
    shown = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    skipped = f"; {len(found) - len(run)} cannot be varied" if len(found) > len(run) else ""
    head = PAGE.format(
        commit=shown.stdout.strip(), total=len(run), good=len(run) - len(rest), rest=len(rest), skipped=skipped
    )
    lines = [f"| {name} | {argument} | {outcome.replace('|', '/')} |" for name, argument, outcome in rest]
    (ROOT / "docs/coverage/floats.md").write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
