"""Operators with the default back end, some samples of some types: a bounded tools/sweep_lowerings.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.sweep_tool import loaded

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "sweep_lowerings.py"
OPERATORS = """
add cumsum scatter_add index_put nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.pad nn.functional.interpolate
softmax nn.functional.layer_norm nn.functional.batch_norm nn.functional.gelu nn.functional.scaled_dot_product_attention gather
as_strided_scatter roll var_mean linalg.vector_norm bitwise_left_shift clamp masked_fill nn.functional.embedding_bag fft.rfftn
unbind_copy nn.functional.cross_entropy ormqr svd_lowrank nn.functional.fractional_max_pool3d native_dropout_backward
"""


@pytest.fixture(scope="module")
def tool() -> Any:
    return loaded("sweep_lowerings")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16", "float16"])
def test_no_operator_fails(dtype: str, tmp_path: Path, tool: Any) -> None:
    chosen = ["--dtype", dtype, "--samples", "2", "--workers", "1", "--operators", ",".join(OPERATORS.split())]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "STOKER_STRICT": "1"}
    subprocess.run(
        [sys.executable, str(TOOL), *chosen, "--to", str(tmp_path / "page.md")], check=True, env=environment, cwd=ROOT
    )
    rows = json.loads((tmp_path / "page.json").read_text())[dtype]
    verdicts = {name: tool.verdict(row) for name, row in rows.items()}
    assert [name for name, verdict in verdicts.items() if verdict == "fail"] == []
    assert sum(verdict == "pass" for verdict in verdicts.values()) > 0.8 * len(verdicts)


def test_a_break_is_seen(tool: Any) -> None:
    """What runs in Python after a break is right, and counted apart."""
    sample = SimpleNamespace(input=torch.randn(3), args=(), kwargs={})

    def breaking(x: Any) -> Any:
        return x + len(str(x.sum()))

    (outcome,) = tool.outcomes(breaking, [sample], False, tool.Watch(), False)
    assert outcome.startswith(tool.APART), outcome
    assert tool.outcomes(torch.sin, [sample], False, tool.Watch(), False) == [""]
    assert tool.verdict({"": 1, outcome: 1}) == "apart"
    assert tool.verdict({outcome: 1, "a value differs": 1}) == "fail"


def test_a_difference_is_seen(tool: Any) -> None:
    """A result further from the answer than its type allows and than eager is, other strides, another whole number."""
    x, answer = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)

    def judged(mine: torch.Tensor, eager: torch.Tensor = x) -> str:
        exact = tool.Observed([answer], [], [])
        return tool.judge(tool.Observed([mine], [], []), tool.Observed([eager], [], []), lambda: exact)  # type: ignore[no-any-return]

    assert judged(x) == "" and judged(x * (1 + 1e-7)) == ""
    assert "differs" in judged(x * 1.001)
    assert judged(x * 1.001, x * 1.0005) == "", "eager is as far away"
    assert "strides" in judged(torch.ones(3, 2).t())
    assert "metadata" in judged(x.double())
    assert "differs" in judged(torch.tensor([1, 2]), torch.tensor([1, 3]))
    assert "differs" in judged(torch.tensor([[float("nan")] * 3] * 2))
