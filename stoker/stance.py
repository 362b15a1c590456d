"""`stoker.stance`: what compiled functions do in this thread, for a while."""

from __future__ import annotations

import contextlib
from typing import Any

from stoker import _C
from stoker.errors import BadArgument

STANCES = ("compiled", "eager", "fail_on_recompile")
"""In the order of csrc/frame_hook.h."""


class stance(contextlib.ContextDecorator):
    """A context, or a decorator of a function.

    compiled:          what is compiled runs compiled, as it does without a stance.
    eager:             what is compiled runs as plain Python.
    fail_on_recompile: a call that no compiled version fits raises, and the error says what was different.
    """

    def __init__(self, name: str) -> None:
        if name not in STANCES:
            raise BadArgument(f"a stance is one of {', '.join(STANCES)}, not {name!r}.")
        self.number = STANCES.index(name)
        self.outer: list[int] = []

    def _recreate_cm(self) -> stance:
        return stance(STANCES[self.number])

    def __enter__(self) -> None:
        self.outer.append(_C.set_stance(self.number))

    def __exit__(self, *error: Any) -> None:
        _C.set_stance(self.outer.pop())


def forbids_compiling() -> bool:
    return STANCES[_C.stance()] == "fail_on_recompile"
