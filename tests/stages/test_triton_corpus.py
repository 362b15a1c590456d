"""The stage corpus and OpInfo's operators through generated Triton, under its interpreter, equal eager; the corpus compiles for sm_90."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.autograd import aot
from stoker.pipeline import decompositions
from stoker.runtime.cubin import Job, compile_all
from tests.stages import test_corpus as corpus
from tests.stages.interpreted import Interpreted, compile_interpreted
from tests.sweep_tool import loaded

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "sweep_lowerings.py"


@pytest.mark.parametrize("program", corpus.PROGRAMS, ids=lambda p: p.__name__)
def test_the_corpus(program: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    given, again, backend = corpus.inputs(), corpus.inputs(), Interpreted()
    call = aot(
        corpus._trace(program),
        given,
        forward_compiler=lambda module, fakes: compile_interpreted(module, fakes, backend),
        decompositions=decompositions(),
    )
    results, expected = corpus._tuple(call(*given)), corpus._tuple(program(*again))
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)
        assert result.stride() == wanted.stride()
    sum(r.sum() for r in results).backward()
    sum(r.sum() for r in expected).backward()
    for mine, eager in zip(given, again, strict=True):
        torch.testing.assert_close(mine.grad, eager.grad)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90, u.stages) for u in backend.units]
    assert jobs and all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))


def test_operators(tmp_path: Path) -> None:
    """Five of eight operators, one sample each, forward and gradients: a bounded `tools/sweep_lowerings.py --generator triton`."""
    tool = loaded("sweep_lowerings")
    names = [name for number, (name, _) in enumerate(tool.sweep.operators(torch.float32)) if number % 8 < 5]
    found = tmp_path / "rows"
    command = [sys.executable, str(TOOL), "--generator", "triton", "--dtype", "float32", "--samples", "1"]
    environment = {**os.environ, "STOKER_STRICT": "1", "STOKER_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*command, "--operators", ",".join(names), "--share", "0/1", "--to", str(found)],
        check=True,
        env=environment,
        cwd=ROOT,
    )
    rows = {name: row for _, name, row in map(json.loads, found.read_text().splitlines()) if row is not None}
    verdicts = {name: tool.verdict(row["outcomes"]) for name, row in rows.items()}
    assert [name for name, verdict in verdicts.items() if verdict == "fail"] == []
    by_kernels = [name for name, verdict in verdicts.items() if verdict == "pass" and rows[name]["lowered"]]
    assert len(by_kernels) >= 300
