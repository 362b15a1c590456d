"""Binaries of the cache are believed where they are whole and ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.runtime import cubin

SOURCE = """import triton
import triton.language as tl


@triton.jit
def nothing(a0):
    tl.store(a0, 1)
"""


def compiled() -> bytes:
    """As in a process that has compiled nothing yet."""
    cubin._known.clear()
    (made,) = cubin.compile_all([cubin.Job("nothing", SOURCE, (("a0", "*i32"),), (0,), 1, 90)])
    return made.content


def test_what_is_damaged_or_not_ours_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    whole = compiled()
    (binary,), (described,) = tmp_path.rglob("*.cubin"), tmp_path.rglob("*.json")
    written = binary.stat().st_mtime_ns
    assert compiled() == whole and binary.stat().st_mtime_ns == written
    binary.write_bytes(whole[:-8] + b"tampered")
    assert compiled() == whole == binary.read_bytes()
    described.write_text("{}")
    assert compiled() == whole
    binary.chmod(0o666)
    assert compiled() == whole
    assert binary.stat().st_mode & 0o777 == 0o600


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    nowhere = tmp_path / "file"
    nowhere.write_text("no directory")
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(nowhere))
    monkeypatch.setattr(cubin, "pool", cubin.Pool)
    assert compiled()
