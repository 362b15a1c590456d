"""Every operator of ATen that the extension calls is included by name: which headers bring which others differs between versions of torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
HEADERS = Path(torch.__file__).parent / "include/ATen/ops"
SOURCES = sorted((ROOT / "csrc").glob("*.[ch]*"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_operators_are_included(source: Path) -> None:
    text = source.read_text()
    called = {name for name in re.findall(r"\bat::(\w+)\(", text) if (HEADERS / f"{name}.h").exists()}
    included = set(re.findall(r"#include <ATen/ops/(\w+)\.h>", text))
    assert called <= included


def test_some_are_called() -> None:
    assert any("#include <ATen/ops/" in source.read_text() for source in SOURCES)
