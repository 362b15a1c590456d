"""A few seconds of tools/stress.py; ten minutes of it are run by hand (`make stress`)."""

from __future__ import annotations

from tools.stress import stress


def test_threads_calls_versions_and_dropped_models() -> None:
    count, _, _ = stress(4, threads=8)
    assert not count.failures, "\n".join(count.failures)
    assert count.done["20 calls"] > 0
