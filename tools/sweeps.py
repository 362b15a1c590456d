"""Run every sweep whose table is in the docs, and say how old each table is.

    python tools/sweeps.py           # hours: all of them, one after the other, then their ages
    python tools/sweeps.py --ages    # seconds: the ages alone
    python tools/sweeps.py lowerings # one of them

A table's age is the number of commits since it was written that changed what it measures. A sweep that a commit did not change is
not run again for it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
FRONT = ("stoker/capture", "stoker/bytecode", "stoker/frame", "stoker/guard", "stoker/shape", "stoker/fake")
MIDDLE = ("stoker/autograd", "stoker/decompose", "stoker/graph")
BACK = ("stoker/passes", "stoker/lower", "stoker/loop", "stoker/schedule", "stoker/codegen", "stoker/runtime", "csrc")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A table in the docs, the commands that write it, and the code that it measures."""

    page: str
    commands: tuple[tuple[str, ...], ...]
    measures: tuple[str, ...]


SWEEPS = {
    "python": Sweep("docs/coverage/python.md", (("tools/coverage_python.py",),), (*FRONT, "tests/differential")),
    "cpython": Sweep("docs/coverage/cpython.md", (("tools/sweep_cpython.py",),), FRONT),
    "operators": Sweep("docs/coverage/operators.md", (("tools/sweep_operators.py",),), (*FRONT, *MIDDLE)),
    "lowerings": Sweep("docs/coverage/lowerings.md", (("tools/sweep_lowerings.py",),), (*MIDDLE, *BACK)),
    "triton": Sweep(
        "docs/coverage/triton.md",
        (
            (
                "tools/sweep_lowerings.py",
                "--generator",
                "triton",
                "--dtype",
                "float32",
                "--samples",
                "1",
                "--to",
                "docs/coverage/triton.md",
            ),
        ),
        (*MIDDLE, *BACK),
    ),
    "models": Sweep(
        "docs/coverage/models.md",
        tuple(
            ("tools/sweep_models.py", "--family", family, "--backend", backend, *train)
            for family in ("timm", "transformers")
            for backend in ("eager", "stoker")
            for train in ((), ("--train",))
        ),
        (*FRONT, *MIDDLE, *BACK),
    ),
    "floats": Sweep("docs/coverage/floats.md", (("tools/sweep_floats.py",),), FRONT),
    "sizes": Sweep("docs/coverage/dynamic.md", (("tools/sweep_dynamic.py",),), (*FRONT, *MIDDLE, *BACK)),
    "programs": Sweep(
        "docs/coverage/programs.md", (("tools/sweep_programs.py",),), (*FRONT, *MIDDLE, *BACK, "bench/programs")
    ),
    "random programs": Sweep(
        "docs/reliability.md", (("tools/fuzz.py", "--seconds", "3600"),), (*FRONT, *MIDDLE, *BACK, "tools/fuzz.py")
    ),
}


def git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def written(page: str) -> tuple[str, str]:
    """The commit that last wrote a page, by its short name, and its day."""
    commit, _, day = git("log", "-1", "--format=%h %cs", "--", page).partition(" ")
    return commit, day


def changes_since(commit: str, paths: tuple[str, ...]) -> int:
    """How many later commits changed some paths."""
    return int(git("rev-list", "--count", f"{commit}..HEAD", "--", *paths))


def ages() -> Table:
    table = Table("table", "written at", "on", "commits since that changed what it measures")
    for sweep in SWEEPS.values():
        commit, day = written(sweep.page)
        table.add_row(sweep.page, commit, day, str(changes_since(commit, sweep.measures)))
    return table


def run(name: str, console: Console) -> bool:
    good = True
    for command in SWEEPS[name].commands:
        start = time.monotonic()
        done = subprocess.run((sys.executable, *command), cwd=ROOT, check=False)
        good &= done.returncode == 0
        console.print(f"{' '.join(command)}: exit {done.returncode}, {time.monotonic() - start:.0f} s")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SWEEPS, []], metavar="name", help=", ".join(SWEEPS))
    parser.add_argument("--ages", action="store_true")
    options = parser.parse_args()
    console = Console()
    results = [] if options.ages else [run(name, console) for name in options.names or SWEEPS]
    console.print(ages())
    raise SystemExit(not all(results))


if __name__ == "__main__":
    main()
