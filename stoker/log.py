"""Events: what was captured, broken, skipped, compiled again, each with a reason and a line of the user's source.

Kept in memory (the last few thousand), shown by `stoker.explain`; warnings go through Python's `logging`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, local
from typing import Any

logger = logging.getLogger("stoker")


@dataclass(frozen=True)
class Event:
    """One thing that happened. `kind`: captured, break, skip, recompile, limit, backend, improved, compiled, patience, took, cudagraph."""

    kind: str
    subject: str
    location: str
    reason: str = ""
    data: Any = None
    """What tools read of it."""


_events: deque[Event] = deque(maxlen=4096)
_told: set[tuple[str, ...]] = set()
_lock = Lock()
_listening = local()
"""`lists`: where else this thread's events go."""


Listeners = tuple[MutableSequence[Event], ...]


def listeners() -> Listeners:
    """Where else this thread's events go, to let those of later work for it go there, too."""
    return tuple(_listening.__dict__.get("lists", ()))


@contextmanager
def telling(others: Listeners) -> Iterator[None]:
    """Keep this thread's events in these lists as well, each once."""
    lists = _listening.__dict__.setdefault("lists", [])
    known = len(lists)
    lists.extend(other for other in others if not any(other is one for one in lists))
    try:
        yield
    finally:
        del lists[known:]


@contextmanager
def collecting(into: MutableSequence[Event]) -> Iterator[None]:
    """Keep this thread's events in a list as well."""
    lists = _listening.__dict__.setdefault("lists", [])
    lists.append(into)
    try:
        yield
    finally:
        lists.pop()


def tell_once(words: str) -> None:
    """A line about the surroundings, which no place of the user's program can change."""
    record(Event("surroundings", words, "?"), level=logging.WARNING, once=("surroundings", words))


def record(event: Event, *, level: int = logging.DEBUG, once: tuple[str, ...] | None = None) -> None:
    """Keep an event; say it aloud the first time, at `level`. What reaches the terminal by itself is one line a function, or one
    for all that has the same `once`."""
    for kept in _listening.__dict__.get("lists", ()):
        kept.append(event)
    with _lock:
        _events.append(event)
        aloud = ("aloud", event.location, "") if level >= logging.WARNING else None
        key = once or aloud or (event.kind, event.location, event.reason)
        first = key not in _told
        _told.add(key)
    if first:
        place = "" if event.location == "?" else f" ({event.location})"
        logger.log(level, "%s: %s%s%s", event.kind, event.subject, place, f": {event.reason}" if event.reason else "")


def events(kind: str | None = None) -> list[Event]:
    """What happened, oldest first."""
    with _lock:
        return [event for event in _events if kind is None or event.kind == kind]


def clear() -> None:
    with _lock:
        _events.clear()
        _told.clear()
