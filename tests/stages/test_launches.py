"""The executor launches kernels on what the plan says: addresses, numbers and tables, seen by a stand-in for the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the driver itself is there")
def test_what_is_launched() -> None:
    made = subprocess.run([sys.executable, "-m", "tests.stages.launched"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["an_optimizer_step", "numbers_by_value", "memory_that_is_not_aligned"]
