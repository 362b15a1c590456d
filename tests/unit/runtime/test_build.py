"""Building: errors show the source and the compiler's words; without a compiler the program still runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.pipeline import compile_captured
from stoker.runtime import build


def test_error_shows_command_and_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    with pytest.raises(build.BuildFailed, match="command: .*\n(.|\n)*error") as caught:
        build.load("int broken( {")
    assert ".cpp" in str(caught.value)


def test_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    source = 'extern "C" int one() { return 1; }'
    assert build.load(source).one() == 1
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.so")}
    build._loaded.clear()
    assert build.load(source).one() == 1
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.so")} == before


def test_without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise build.NoCompiler

    monkeypatch.setattr("stoker.codegen.cpp.backend.compiler", none)
    x = torch.randn(4)
    call = compile_captured(torch.fx.symbolic_trace(lambda x: (x.exp() + 1,)), [x])
    torch.testing.assert_close(call(x)[0], x.exp() + 1)


def test_index_out_of_range() -> None:
    x, i = torch.randn(4), torch.tensor([1, 3])
    call = compile_captured(torch.fx.symbolic_trace(lambda x, i: (x[i] * 2,)), [x, i])
    torch.testing.assert_close(call(x, torch.tensor([0, -1]))[0], x[[0, 3]] * 2)
    with pytest.raises(IndexError):
        call(x, torch.tensor([0, 4]))


@pytest.mark.parametrize(("version", "known"), [("g++ (Debian 12.2.0)", True), ("Debian clang version 16.0.6", False)])
def test_names_of_passes_are_told_to_gcc_alone(monkeypatch: pytest.MonkeyPatch, version: str, known: bool) -> None:
    monkeypatch.setattr(build, "_machine", lambda: version)
    assert set(build.FLAGS) <= set(build.flags())
    assert (set(build.ONLY_GCC) <= set(build.flags())) is known
