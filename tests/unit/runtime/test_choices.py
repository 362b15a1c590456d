"""What was measured is known to other processes, and only where it is the same question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stoker.runtime import choices


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("answer", [3, {"best": None, "words": "1 us"}, [1, 2], ""], ids=str)
def test_what_is_kept_is_known(answer: Any) -> None:
    question = ("tiling", "a source", 5, ("x", 2.5))
    assert choices.known(question) is None
    choices.keep(question, answer)
    assert choices.known(question) == answer
    assert choices.known([*question, "more"]) is None


def test_a_damaged_entry_is_none(cache: Path) -> None:
    choices.keep(["question"], 1)
    (entry,) = cache.rglob("*.choice")
    entry.write_text(entry.read_text()[:-3])
    assert choices.known(["question"]) is None
    entry.write_text(json.dumps({"question": ["another"], "answer": 1}))
    assert choices.known(["question"]) is None
    choices.keep(["question"], 2)
    assert choices.known(["question"]) == 2


def test_somebody_elses_entry_is_none(cache: Path) -> None:
    choices.keep(["question"], 1)
    (entry,) = cache.rglob("*.choice")
    entry.chmod(0o666)
    assert choices.known(["question"]) is None


def test_where_nothing_can_be_written(cache: Path) -> None:
    choices.keep(["question"], 1)
    (entry,) = cache.rglob("*.choice")
    entry.unlink()
    entry.parent.rmdir()
    entry.parent.write_text("a file where a directory would be")
    choices.keep(["question"], 1)
    assert choices.known(["question"]) is None
