"""Results as data, tables and plots: what bench/models.py and bench/kernels.py measured, written into docs/benchmarks.md."""

from __future__ import annotations

import json
import math
import os
import platform
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"


def machine() -> str:
    """The machine in words, without its name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{platform.machine()}, {cores} cores of {model}, Python {platform.python_version()}, torch {torch.__version__}"
    )


def put(name: str, text: str) -> None:
    """Write a part of the page, between its markers."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def keep(name: str, rows: dict[str, Any]) -> None:
    """Keep measured rows as data, and write table and plot."""
    path = RESULTS / f"models-{name}.json"
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    plot = ROOT / "docs" / f"models-{name}.svg"
    plot.write_text(bars(rows))
    put(name, f"Machine: {machine()}.\n\n{table(rows)}\n\n![Speed over eager]({plot.name})")


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def table(rows: dict[str, Any]) -> str:
    """Milliseconds of a call, ratios, seconds of first calls, megabytes at the peak."""
    cold = any("stoker cold" in row for row in rows.values())
    lines = ["| model | eager ms | stoker ms | torch.compile ms | over eager | over torch.compile |"]
    if cold:
        lines[0] += " cold s: stoker, torch.compile | warm s: eager, stoker, torch.compile | peak MB: eager, stoker |"
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for name, row in rows.items():
        mine = row["stoker"]
        words = f"| {name} | {row['eager']:.1f} | {mine:.1f} | {_given(row, 'torch.compile')} "
        words += f"| {row['eager'] / mine:.2f} | {_ratio(row, 'torch.compile')} |"
        if cold:
            words += f" {_given(row, 'stoker cold')}, {_given(row, 'torch.compile cold')} |"
            words += f" {_given(row, 'eager warm', 2)}, {_given(row, 'stoker warm', 2)}, {_given(row, 'torch.compile warm')} |"
            words += f" {_given(row, 'eager peak', 0)}, {_given(row, 'stoker peak', 0)} |"
        lines.append(words)
    eager = mean([row["eager"] / row["stoker"] for row in rows.values()])
    rival = [row["torch.compile"] / row["stoker"] for row in rows.values() if "torch.compile" in row]
    lines.append(f"| geometric mean | | | | {eager:.2f} | {f'{mean(rival):.2f}' if rival else ''} |" + " | | |" * cold)
    return "\n".join(lines)


def _given(row: dict[str, float], key: str, digits: int = 1) -> str:
    return f"{row[key]:.{digits}f}" if key in row else "-"


def _ratio(row: dict[str, float], rival: str) -> str:
    return f"{row[rival] / row['stoker']:.2f}" if rival in row else "-"


WIDTH, LEFT, STEP, SCALE = 760, 190, 34, 200


def bars(rows: dict[str, Any]) -> str:
    """Speed over eager as bars: stoker's, and torch.compile's below it."""
    parts = []
    for number, (name, row) in enumerate(rows.items()):
        y = 30 + number * STEP
        parts.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{name}</text>')
        for place, (who, colour) in enumerate((("stoker", "#c2410c"), ("torch.compile", "#64748b"))):
            if who in row:
                speed = row["eager"] / row[who]
                top = y + place * 13
                parts.append(f'<rect x="{LEFT}" y="{top}" width="{speed * SCALE:.0f}" height="12" fill="{colour}"/>')
                parts.append(
                    f'<text x="{LEFT + speed * SCALE + 5:.0f}" y="{top + 10}" font-size="10">{speed:.2f}</text>'
                )
    height = 40 + len(rows) * STEP
    line = (
        f'<line x1="{LEFT + SCALE}" y1="22" x2="{LEFT + SCALE}" y2="{height - 8}" stroke="#111" stroke-dasharray="3"/>'
    )
    head = (
        f'<text x="{LEFT}" y="16">speed over eager (line): <tspan fill="#c2410c">stoker</tspan>, torch.compile</text>'
    )
    style = 'font-family="sans-serif" font-size="12"'
    body = "\n".join((head, line, *parts))
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" {style}>\n{body}\n</svg>\n'
