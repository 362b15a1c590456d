"""A cache or a compiler that cannot be used: a right result, and one line."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import stoker
from stoker import cache, log
from stoker.runtime import build


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache that nobody has used, in a process that knows nothing."""
    _forget()
    path = tmp_path / "cache"
    monkeypatch.setenv("STOKER_CACHE", str(path))
    log.clear()
    yield path
    for found in tmp_path.rglob("*"):
        if found.is_dir():
            found.chmod(0o700)
    _forget()


def _forget() -> None:
    build._loaded.clear()
    build._broken.clear()
    for known in (build._compiler, build._machine, cache._usable):
        known.cache_clear()


def _program(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() + 1).sin() * 3


def _runs(caplog: pytest.LogCaptureFixture, *, lines: int = 1) -> str:
    """Compile two graphs, see that they are right, and that as many lines were said; the first of them."""
    with caplog.at_level(logging.WARNING, "stoker"):
        for x in (torch.randn(4), torch.randn(4, 4)):
            torch.testing.assert_close(stoker.compile(_program)(x), _program(x))
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == lines, said
    return said[0] if said else ""


def test_nothing_is_wrong(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    _runs(caplog, lines=0)
    libraries = list(place.rglob("*.so"))
    assert libraries and stat.S_IMODE(place.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o700 for p in libraries)
    before = {p: p.stat().st_mtime_ns for p in libraries}
    _forget()
    _runs(caplog, lines=0)
    assert {p: p.stat().st_mtime_ns for p in place.rglob("*.so")} == before


def test_a_file(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    place.write_text("no directory")
    assert "is not used" in _runs(caplog)


def test_not_writable(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir()
    usual = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != place and usual(path, mode))
    assert "cannot be written" in _runs(caplog)


def test_written_by_others(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    place.mkdir()
    place.chmod(0o777)
    assert "chmod go-w" in _runs(caplog)
    assert not list(place.iterdir())


def test_of_somebody_else(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with caplog.at_level(logging.WARNING, "stoker"):
        assert cache.cache_directory() != place
    assert "belongs to user" in caplog.records[0].getMessage()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "garbage": lambda content: b"\x00" * len(content),
    "one bit": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    "planted": lambda content: content[:-38],
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_entries(name: str, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4)
    stoker.compile(_program)(x)
    for library in place.rglob("*.so"):
        content = library.read_bytes()
        library.unlink()  # it is mapped into this process
        library.write_bytes(DAMAGES[name](content))
        library.chmod(0o700)
    _forget()
    with caplog.at_level(logging.WARNING, "stoker"):
        torch.testing.assert_close(stoker.compile(_program)(x), _program(x))
    assert len(caplog.records) == 1 and "is damaged" in caplog.records[0].getMessage()


def test_an_entry_that_others_can_write(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4)
    stoker.compile(_program)(x)
    for library in place.rglob("*.so"):
        library.chmod(0o766)
    _forget()
    with caplog.at_level(logging.WARNING, "stoker"):
        torch.testing.assert_close(stoker.compile(_program)(x), _program(x))
    assert "others can write" in caplog.records[0].getMessage()


def test_a_full_disk(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = build._build

    def full(source: str, library: Path) -> None:
        if library.is_relative_to(place):
            raise OSError(28, "No space left on device")
        usual(source, library)

    monkeypatch.setattr(build, "_build", full)
    assert "No space left" in _runs(caplog)


def _script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


COMPILERS = {
    "fails": ('[ "$1" = --version ] && echo 1 && exit 0; echo "no headers" >&2; exit 1', "cannot compile anything"),
    "is killed": ('[ "$1" = --version ] && echo 1 && exit 0; kill -9 $$', "cannot compile anything"),
    "hangs": ('[ "$1" = --version ] && echo 1 && exit 0; sleep 60', "gave no answer within"),
    "does nothing": ("exit 0", "cannot compile anything"),
    "has no version": ("exit 3", "does not tell its version"),
}


@pytest.mark.parametrize("name", COMPILERS)
def test_a_compiler_that(
    name: str, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, words = COMPILERS[name]
    monkeypatch.setenv("CXX", _script(tmp_path / "cxx", body))
    monkeypatch.setattr(build, "SECONDS_FOR_ONE", 1.0)
    assert words in _runs(caplog)


def test_no_compiler(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert "no C++ compiler" in _runs(caplog)


def test_no_proc(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Path.read_text

    def read_text(path: Path, *args: object, **kwargs: object) -> str:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return usual(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)
    _runs(caplog, lines=0)


def test_no_home(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("/proc/nowhere"))
    assert "is not used" in _runs(caplog)
