"""Some random programs of tools/fuzz.py in every run of the tests; hours of it are run by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import fuzz


@pytest.mark.parametrize("part", range(4))
def test_random_programs_agree_with_eager(part: int, tmp_path: Path) -> None:
    tried, found = fuzz.search(1000 * part, seconds=30, folder=tmp_path, limit=48)
    assert tried > 0
    assert not found, "\n".join(path.read_text() for path in found)


def test_random_programs_agree_with_eager_at_twenty_sizes(tmp_path: Path) -> None:
    tried, found = fuzz.search(5000, seconds=30, folder=tmp_path, limit=16, sizes=20)
    assert tried > 0
    assert not found, "\n".join(path.read_text() for path in found)


def test_a_difference_is_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is wrong about one statement: what is written is little more than that statement."""
    original = fuzz.stoker.compile

    def wrong(function: object, **settings: object) -> object:
        return lambda x, *rest: original(function, **settings)(x * 2, *rest)

    monkeypatch.setattr(fuzz.stoker, "compile", wrong)
    _, (path, *_) = fuzz.search(3, seconds=60, folder=tmp_path, limit=4)
    program = path.read_text().split("def program(")[1].split("if __name__")[0]
    assert len(program.splitlines()) <= 6
