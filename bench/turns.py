"""Processes that get ready beside each other and are measured one at a time.

A child compiles, then calls `wait_for_turn`, measures and prints its result as the last line. The parent (`rows`) starts a group of
children, waits until each is ready, and lets one after the other go on, so that whoever measures has the machine to itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

READY = "ready to be measured"
WORDS_OF_ERROR = 12
"""Lines that are shown of a child that failed."""


def wait_for_turn() -> None:
    """In a child: everything is compiled, and what follows is measured."""
    if os.environ.get("BENCH_TURNS"):
        print(READY, flush=True)
        sys.stdin.readline()


def rows(commands: dict[str, Sequence[str]], at_once: int) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """What each command (arguments of the interpreter) printed last, by its name; a text where it failed."""
    names = list(commands)
    for start in range(0, len(names), at_once):
        with tempfile.TemporaryDirectory() as folder:
            group = {name: _started(commands[name], Path(folder, name)) for name in names[start : start + at_once]}
            for child in group.values():
                _ready(child)
            for name, child in group.items():
                yield name, _result(child, Path(folder, name))


def _started(arguments: Sequence[str], errors: Path) -> subprocess.Popen[str]:
    with errors.open("w") as file:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=os.environ | {"BENCH_TURNS": "1"},
        )


def _ready(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == READY:
            return


def _result(child: subprocess.Popen[str], errors: Path) -> dict[str, Any] | str:
    try:
        printed, _ = child.communicate("\n")
    except BrokenPipeError:  # it ended before its turn
        printed = ""
    if child.wait() or not printed.strip():
        return "\n".join(errors.read_text().strip().splitlines()[-WORDS_OF_ERROR:]) or f"exit {child.returncode}"
    return json.loads(printed.strip().splitlines()[-1])  # type: ignore[no-any-return]
