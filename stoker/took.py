"""How long stages of a compilation took.

In:  `with timed("lower")` around a stage; stages may be inside others.
Out: an event for each, which `stoker.explain` adds up.

Requirements, held by tests/unit/test_explain.py:
  1. A stage's time is its own: what the stages inside it took is theirs.
  2. A stage that ends with an exception is counted like another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stoker.log import Event, record

WHOLE = "the rest"
"""The stage around all others of a call: what is its own is in none of them."""


@dataclass(frozen=True, slots=True)
class Took:
    """One run of a stage, in seconds of the machine's clock."""

    stage: str
    start: float
    end: float
    what: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start


@contextmanager
def timed(stage: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        tell(Took(stage, start, time.perf_counter()))


def tell(took: Took) -> None:
    record(Event("took", took.stage, "?", took.what, took))


def own_seconds(spans: Sequence[Took]) -> dict[str, float]:
    """The time of each stage without that of the stages inside it, the longest first.

    >>> inside, around = Took("build", 1.0, 4.0), Took("autograd", 0.0, 5.0)
    >>> own_seconds([inside, around])
    {'build': 3.0, 'autograd': 2.0}
    """
    own: dict[str, float] = {}
    around: list[Took] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        while around and around[-1].end <= span.start:
            around.pop()
        if around:
            own[around[-1].stage] -= span.seconds
        own[span.stage] = own.get(span.stage, 0.0) + span.seconds
        around.append(span)
    return dict(sorted(own.items(), key=lambda item: -item[1]))
