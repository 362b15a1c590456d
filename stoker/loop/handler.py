"""`ops`: the vocabulary of loop bodies, given a meaning by the handler in force.

A body is a Python function that calls `ops.load`, `ops.add`, ... . What those calls do is decided by the handler: record
instructions (`stoker.loop.body`), compute with tensors (`stoker.loop.interpret`). This is the one dynamically scoped
variable of the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_handler: ContextVar[Any] = ContextVar("stoker loop handler")


class _Ops:
    """Forwards each name to the handler: `ops.add(a, b)` is `handler.call("add", (a, b))` unless it has its own method."""

    def __getattr__(self, name: str) -> Any:
        handler = _handler.get()
        method = getattr(handler, name, None)
        if method is not None:
            return method
        return lambda *arguments: handler.call(name, arguments)


ops = _Ops()


def handler() -> Any:
    """The handler in force."""
    return _handler.get()


@contextmanager
def using(new: Any) -> Iterator[Any]:
    """Give `ops` this meaning inside the block."""
    token = _handler.set(new)
    try:
        yield new
    finally:
        _handler.reset(token)
