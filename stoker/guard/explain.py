"""A failed guard in words: which value, what was assumed, what it is."""

from __future__ import annotations

from typing import Any

from stoker.guard.guard import Guard, TensorMatch, TypeIs, shown
from stoker.guard.source import CallPoint, Source, follow


def why_failed(captured: Any, number: int, request: Any) -> str:
    """Words for guard `number` of a captured version, given the call that failed it."""
    guard: Guard = captured.guards[number]
    if guard.source is None or guard.check is None:
        return guard.text + "".join(_is(source, request) for source in guard.reads)
    try:
        now = follow(guard.source, CallPoint(request.bound, request.function))
    except LookupError as missing:
        return f"{guard.text}, but {missing}"
    where = f" (needed at {guard.location})" if guard.location else ""
    if isinstance(guard.check, TensorMatch):
        mismatch = guard.check.spec.mismatch(now)
        return f"{guard.text}, but its {mismatch}{where}" if mismatch else f"{guard.text}{where}"
    what = f"a {type(now).__qualname__}" if isinstance(guard.check, TypeIs) else shown(now, 80)
    return f"{guard.text}, but is {what}{where}"


def _is(source: Source, request: Any) -> str:
    try:
        return f", but {source.text} is {shown(follow(source, CallPoint(request.bound, request.function)))}"
    except LookupError as missing:
        return f", but {missing}"
