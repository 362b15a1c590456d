"""Break anywhere: every program, broken before each of its instructions in turn, must still agree with eager.

A break before an instruction rebuilds the stack and the locals, runs the instruction in CPython, and goes on in a resume
function; so this drives every rebuilding and resuming that the programs can need, in places no construct would choose.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from harness import Program, Runner, compare

import stoker
import stoker.capture.capture
from stoker.bytecode import decode
from stoker.capture.evaluator import Steps
from stoker.errors import Break


@contextlib.contextmanager
def forced_break(step: int, *, everywhere: bool) -> Iterator[None]:
    """Break the first frame captured (or every one) before its instruction number `step`."""
    forced = 0

    def steps(*args: object) -> Steps:
        nonlocal forced
        if args or (forced and not everywhere):
            return Steps(*args)
        forced += 1
        return Steps(step, Break("a forced break", "a test asked for it")) if forced < 50 else Steps()

    with mock.patch.object(stoker.capture.capture, "Steps", steps):
        yield


def steps_of(p: Program) -> int:
    return len(decode((p.function() if p.factory else p.function).__code__))


def check_at(p: Program, step: int, *, everywhere: bool = False) -> None:
    """One call, broken there."""
    eager = Runner(p, lambda f: f)
    compiled = Runner(p, lambda f: stoker.compile(f, backend="eager"))
    with forced_break(step, everywhere=everywhere):
        found = compiled(0)
    compare(eager(0), found, f"broken before instruction {step}")
