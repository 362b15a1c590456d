"""A C++ compiler that is slow, hangs or fails while the program runs on, and a program that ends meanwhile."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import stoker
from stoker import cache, log
from stoker.runtime import background, build

ROOT = Path(__file__).parents[3]
SECONDS_TO_BUILD = 60.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, in a process that knows of no compiler."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    _forget()
    log.clear()
    yield tmp_path
    _forget()


def _forget() -> None:
    build._loaded.clear()
    build._broken.clear()
    for known in (build._compiler, build._machine, cache._usable):
        known.cache_clear()


def _compiler(place: Path, body: str) -> str:
    """A compiler that tells its version, and otherwise does what is said."""
    path = place / "cxx"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n{body}\n')
    path.chmod(0o755)
    return str(path)


def _program(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() + 1).sin() * 3


def _called_until(compiled: stoker.Compiled, kind: str, subject: str) -> None:
    """Call until an event comes: the right results, meanwhile and then."""
    end = time.perf_counter() + SECONDS_TO_BUILD
    while not any(subject in event.subject for event in log.events(kind)):
        assert time.perf_counter() < end, log.events()
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), _program(x))
        time.sleep(0.01)
    torch.testing.assert_close(compiled(x), _program(x))


def test_a_slow_compiler(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first calls return before it does; when it has, kernels take over, and the cache has them for others."""
    monkeypatch.setenv("CXX", _compiler(place, f'while [ ! -e {place}/go ]; do sleep 0.02; done; exec g++ "$@"'))
    compiled = stoker.compile(_program, options={"patience": 0.1})
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(4)), _program(torch.ones(4)))
    assert not log.events("compiled") and len(log.events("patience")) == 1
    (place / "go").touch()
    _called_until(compiled, "patience", "have taken over")
    assert len(log.events("compiled")) == 1
    other = stoker.compile(_program, options={"patience": 0})
    torch.testing.assert_close(other(torch.ones(4)), _program(torch.ones(4)))
    assert len(log.events("compiled")) == 2 and len(log.events("patience")) == 2, "what the cache has is waited for"


def test_a_compiler_that_hangs(place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended in the background, and told as where it is waited for."""
    monkeypatch.setenv("CXX", _compiler(place, "sleep 600"))
    monkeypatch.setattr(build, "SECONDS_FOR_ONE", 0.5)
    with caplog.at_level(logging.WARNING, "stoker"):
        _called_until(stoker.compile(_program, options={"patience": 0}), "backend", "a graph runs through ATen")
    (said,) = caplog.records
    assert "gave no answer within 0.5 seconds" in said.getMessage()


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_build_that_fails(is_strict: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report says so, once, and the graph runs on as it did."""
    monkeypatch.setenv("STOKER_STRICT", str(int(is_strict)))
    monkeypatch.setenv("CXX", _compiler(place, 'case "$*" in *least*) exec g++ "$@";; esac; echo refused >&2; exit 1'))
    compiled = stoker.compile(_program, options={"patience": 0})
    if is_strict:
        with pytest.raises(build.BuildFailed, match="refused"):
            _called_until(compiled, "defect", "not compiled")
        return
    _called_until(compiled, "defect", "not compiled")
    for _ in range(3):
        compiled(torch.ones(4))
    (event,) = log.events("defect")
    assert "BuildFailed" in event.reason
    assert len(list((place / "cache" / "reports").iterdir())) == 1


PROGRAM = """
import multiprocessing, os, sys, torch, stoker
def program(x):
    return (x.exp() + 1).sin() * 3
def use():
    compiled = stoker.compile(program, options={"patience": 0})
    torch.testing.assert_close(compiled(torch.ones(4)), program(torch.ones(4)))
    while not os.path.exists(os.environ["BEGUN"]):
        pass
    assert len(stoker.events("patience")) == 1
"""
ENDS = {
    "by itself": "use()",
    "with an error": "use(); raise SystemExit(0)",
    "of a process of multiprocessing": "child = multiprocessing.get_context('fork').Process(target=use); child.start(); child.join()",
    "of a process that was forked": "use(); child = os.fork(); child and os.waitpid(child, 0)",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end(end: str, place: Path) -> None:
    """of a process does not wait for the compiler, and leaves neither a process nor a temporary file behind."""
    begun = place / "begun"
    compiler = _compiler(place, f"echo $$ > {begun}.part; mv {begun}.part {begun}; sleep 600")
    environment = os.environ | {"CXX": compiler, "BEGUN": str(begun), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS[end]], env=environment, timeout=300, capture_output=True, text=True
    )
    assert run.returncode == 0 and not run.stderr, run.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    left = [path for path in (place / "cache").rglob("*") if path.is_file()]
    assert left and {path.suffix for path in left} == {".cpp"}
    assert not list((place / "cache").rglob("tmp*"))


def test_a_fork_builds_what_it_needs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has none of its parent's threads."""
    monkeypatch.setenv("CXX", _compiler(place, f'while [ ! -e {place}/go ]; do sleep 0.02; done; exec g++ "$@"'))
    compiled = stoker.compile(_program, options={"patience": 0})
    compiled(torch.ones(4))
    child = os.fork()
    if not child:
        try:
            (place / "go").touch()
            _called_until(compiled, "patience", "have taken over")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


WAITS = ["/bin/sh", "-c", "exec sleep 600"]


def test_the_program_goes_first() -> None:
    """A command that nobody waits for steps back behind it."""
    command = background.begin(lambda: background.run(WAITS, 600.0))
    deadline = time.perf_counter() + 10.0
    mine: list[subprocess.Popen[str]] = []
    while not mine and time.perf_counter() < deadline:
        time.sleep(0.01)
        mine = [
            other for other in list(background._beside.commands) if other.args == WAITS
        ]  # compilers may run beside it
    (process,) = mine
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    background.step_back()
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == background.NICENESS
    process.kill()
    assert command.result(10.0).returncode == -9


def test_a_command_is_ended_with_what_it_started() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        background.run(["/bin/sh", "-c", "sleep 600 & sleep 600"], 0.1)
    said = background.run(["/bin/sh", "-c", "echo said; echo words >&2; exit 3"], 10.0)
    assert (said.returncode, said.stdout, said.stderr) == (3, "said\n", "words\n")
