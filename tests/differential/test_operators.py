"""Every operator of OpInfo through capture and aot_eager, one or two samples each: a bounded tools/sweep_operators.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sweep_tool import loaded

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "sweep_operators.py"
SAMPLES = {"float32": 2, "float64": 1, "complex64": 1, "bfloat16": 1, "int64": 1, "bool": 1}


@pytest.fixture(scope="module")
def tool() -> Any:
    return loaded("sweep_operators")


@pytest.mark.parametrize("dtype", SAMPLES)
def test_no_operator_fails(dtype: str, tmp_path: Path, tool: Any) -> None:
    command = [sys.executable, str(TOOL), "--dtype", dtype, "--samples", str(SAMPLES[dtype]), "--to"]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "STOKER_STRICT": "1"}
    subprocess.run([*command, str(tmp_path / "page.md")], check=True, env=environment, cwd=ROOT)
    rows = json.loads((tmp_path / "page.json").read_text())[dtype]
    verdicts = {name: tool.verdict(row) for name, row in rows.items()}
    assert [name for name, verdict in verdicts.items() if verdict == "fail"] == []
    assert sum(verdict == "pass" for verdict in verdicts.values()) > 0.8 * len(verdicts)


def test_a_difference_is_seen(tool: Any) -> None:
    """The sweep would notice: a wrong value, a wrong gradient, other strides, a missing gradient."""
    import torch

    x = torch.ones(2, 3)
    assert tool.difference(([x], [x]), ([x], [x]), True) == ""
    assert "value differs" in tool.difference(([x], []), ([x + 1], []), True)
    assert "gradient differs" in tool.difference(([], [x]), ([], [x + 1]), True)
    assert "strides" in tool.difference(([torch.ones(3, 2).t()], []), ([x], []), True)
    assert "None" in tool.difference(([], [None]), ([], [x]), True)
    assert tool.difference(([x], []), ([x * (1 + 1e-7)], []), True) in ("", "rounding")
