"""Run the programs of bench/programs eagerly and compiled, and write docs/coverage/programs.md.

    python tools/sweep_programs.py [--only graphs,recurrent] [--backend stoker]

For each: how many graphs were compiled for how many functions, where capture broke, how often a function was compiled again, and
whether results, gradients and what was changed are eager's but for rounding.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("STOKER_STRICT", "1")
PAGE = ROOT / "docs" / "coverage" / "programs.md"

import torch  # noqa: E402

import stoker  # noqa: E402
from bench.programs import Program, load  # noqa: E402


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a program."""

    program: Program
    functions: int
    versions: int
    breaks: tuple[str, ...]
    verdict: str
    seconds: float

    @property
    def is_whole(self) -> bool:
        """One graph for each function."""
        return not self.breaks and self.verdict.startswith("equal")


def run(program: Program, backend: str) -> Row:
    """Run a program both ways."""
    stoker.reset()
    wanted = seeded(program, lambda function: function)
    stoker.log.clear()
    begun = time.perf_counter()
    try:
        found = seeded(program, lambda function: stoker.compile(function, backend=backend))
        torch.testing.assert_close(plain(found), plain(wanted), rtol=1e-3, atol=1e-4)
        verdict = "equal, run as captured" if stoker.events("as captured") or stoker.events("backend") else "equal"
    except AssertionError as difference:
        verdict = f"differs: {' '.join(str(difference).split())[:80]}"
    except Exception as error:  # noqa: BLE001 the sweep reports whatever fails
        verdict = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    captured = Counter(event.location for event in stoker.events("captured"))
    breaks = [event.reason for event in (*stoker.events("break"), *stoker.events("skip"))]
    shown = tuple(dict.fromkeys(reason for reason in breaks if "as it is" not in reason))
    return Row(program, len(captured), captured.total(), shown, verdict, time.perf_counter() - begun)


def seeded(program: Program, compile: Any) -> Any:
    torch.manual_seed(0)
    return program.run(compile)


def plain(value: Any) -> Any:
    """Results as tensors and numbers that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def page(rows: list[Row], backend: str) -> str:
    """The page as text."""
    whole = sum(row.is_whole for row in rows)
    equal = sum(row.verdict.startswith("equal") for row in rows)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    lines = [
        "# Programs\n",
        "Written by `python tools/sweep_programs.py` from `bench/programs`: programs as they are written in the wild, run eagerly and",
        f"compiled with the back end `{backend}`. *functions* are those that were compiled, *versions* how many graphs they became in all,",
        "over the sizes and numbers that each program goes through; a program is equal if what it returns, its gradients and what it",
        "changed are eager's but for rounding. What runs *as captured* is one graph of whole operators, without kernels of ours.\n",
        f"Run at commit {commit}.\n",
        f"{len(rows)} programs: {whole} in one graph per function, {equal} equal.\n",
    ]
    for family in dict.fromkeys(row.program.family for row in rows):
        lines += [f"## {family}\n", "| program | functions | versions | breaks | result |", "|---|---|---|---|---|"]
        for row in (r for r in rows if r.program.family == family):
            why = "; ".join(reason.replace("|", "\\|")[:140] for reason in row.breaks) or "none"
            lines.append(f"| {row.program.name} | {row.functions} | {row.versions} | {why} | {row.verdict} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="families or functions, separated by commas; all if none")
    parser.add_argument("--backend", default="stoker")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    only = [word for word in options.only.split(",") if word]
    rows = []
    for program in load():
        if only and not any(word in (program.run.__name__, program.run.__module__.rpartition(".")[2]) for word in only):
            continue
        row = run(program, options.backend)
        rows.append(row)
        print(
            f"{row.seconds:5.1f} s  {row.functions} {row.versions}  {row.verdict:10}  {program.name}  {'; '.join(row.breaks)[:200]}",
            flush=True,
        )
    if not only:
        PAGE.write_text(page(rows, options.backend) + "\n")


if __name__ == "__main__":
    main()
