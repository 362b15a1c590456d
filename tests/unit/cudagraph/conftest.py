from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from stoker import _C
from stoker.cudagraph import choose
from tests.unit.cudagraph.stand_in import StandIn


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    made = StandIn()
    monkeypatch.setattr(choose, "time", SimpleNamespace(perf_counter=lambda: made.now))
    _C.set_stream_source(lambda number: made.current_stream)
    yield made
    _C.set_stream_source(None)
