"""A few of CPython's own test modules, run inside of compiled functions; `tools/sweep_cpython.py` runs the others."""

from __future__ import annotations

import pytest

from tests.sweep_tool import loaded

MODULES = ("test_raise", "test_defaultdict", "test_generator_stop")


@pytest.mark.parametrize("name", MODULES)
def test_agrees(name):
    pytest.importorskip("test.support")
    run = loaded("sweep_cpython").run_module
    plain, compiled = dict(run(name, False)), dict(run(name, True))
    assert "passed" in plain.values()
    assert {method: compiled[method] for method, words in plain.items() if words == "passed"} == {
        method: "passed" for method, words in plain.items() if words == "passed"
    }
