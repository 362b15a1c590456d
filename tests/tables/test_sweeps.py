"""The sweeps that `make sweeps` runs: their tables, tools and what they measure are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.sweeps import ROOT, SWEEPS


@pytest.mark.parametrize("name", SWEEPS)
def test_all_is_there(name: str) -> None:
    sweep = SWEEPS[name]
    tools = {command[0] for command in sweep.commands}
    for path in (sweep.page, *tools, *sweep.measures):
        assert (ROOT / path).exists(), path


def test_every_table_has_a_sweep() -> None:
    pages = {str(page.relative_to(ROOT)) for page in Path(ROOT / "docs/coverage").glob("*.md")}
    assert pages <= {sweep.page for sweep in SWEEPS.values()}
