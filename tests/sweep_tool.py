"""A tool of tools/ as a module: tests run bounded sweeps, and read what they found with the tool's own functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


def loaded(name: str) -> Any:
    """The tool of a name. Operators' samples need `expecttest`, which the test environment has."""
    pytest.importorskip("expecttest")
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
