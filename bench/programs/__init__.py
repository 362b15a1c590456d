"""Sixty programs as they are written in the wild, small: what `tools/sweep_programs.py` runs for `docs/coverage/programs.md`.

A program takes `compile`, which is `stoker.compile` or does nothing, and returns what is to be compared. Random numbers are
seeded before each run, so that both build the same model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Compile = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """One row of the page."""

    name: str
    family: str
    run: Callable[[Compile], Any]


PROGRAMS: list[Program] = []


def program(family: str) -> Callable[[Callable[[Compile], Any]], Callable[[Compile], Any]]:
    """Add a function to the list, under the words of its docstring."""

    def register(function: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
        PROGRAMS.append(Program((function.__doc__ or function.__name__).strip().rstrip("."), family, function))
        return function

    return register


def load() -> list[Program]:
    """All programs."""
    from bench.programs import (  # noqa: F401, PLC0415  # each adds its own
        decoders,
        detection,
        experts,
        graphs,
        notation,
        policies,
        recurrent,
        steps,
        vision,
    )

    return PROGRAMS
