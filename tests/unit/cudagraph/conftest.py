from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoker import _C
from tests.unit.cudagraph.stand_in import StandIn


@pytest.fixture
def device() -> Iterator[StandIn]:
    made = StandIn()
    _C.set_stream_source(lambda number: made.current_stream)
    yield made
    _C.set_stream_source(None)
