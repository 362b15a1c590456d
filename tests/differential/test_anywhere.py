"""Every program, broken in unusual places: see anywhere.py."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from anywhere import check_at, steps_of

STRIDE = 23  # each program at every 23rd instruction, another offset each; all of them take three minutes
MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if path.stem != Path(__file__).stem)

# A break keeps what the frame holds alive until the function returns, so these observe a later close than eager's.
LIFETIME = {
    "test_abandoned_generator",
    "test_generator_root",
    "test_generator_temporary",
    "test_generator_reassigned",
    "test_finalizer",
}
# After a break, the frame in which an error is raised is that of replacement code, which has other variables.
VARIABLES = {"test_variables"}
# After a break, a dictionary is made anew: an iterator over it has forgotten what became of the dictionary before.
MADE_ANEW = {"test_changed_while_iterated"}


def programs(name: str) -> list:
    found = vars(importlib.import_module(name)).items()
    known = LIFETIME | VARIABLES | MADE_ANEW
    return [test.program for test_name, test in found if hasattr(test, "program") and test_name not in known]


@pytest.mark.parametrize("everywhere", [False, True], ids=["once", "everywhere"])
@pytest.mark.parametrize("name", MODULES)
def test_break_anywhere(name: str, everywhere: bool) -> None:
    for number, program in enumerate(programs(name)):
        for step in range((number + everywhere) % STRIDE, steps_of(program), STRIDE):
            check_at(program, step, everywhere=everywhere)
