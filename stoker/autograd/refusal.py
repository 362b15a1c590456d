"""The one way out of tracing."""

from __future__ import annotations

import traceback


class CannotTrace(RuntimeError):
    """The program does what a functional graph cannot express; it must run as it was captured."""


def raised_by_program(error: Exception) -> bool:
    """Did a function of the program raise it, called by a trace? The innermost that is not torch's tells."""
    names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    inner = next((name for name in reversed(names) if name.partition(".")[0] != "torch"), "stoker")
    return inner.partition(".")[0] != "stoker"
