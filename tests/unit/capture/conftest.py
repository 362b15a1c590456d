"""An evaluator that has evaluated nothing, to ask its components."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoker.capture import builtins as _fills_the_tables  # noqa: F401
from stoker.capture.evaluator import Evaluator, Request
from stoker.capture.policy import Policy
from stoker.capture.sizes import History


def nothing() -> None:
    return None


def fresh() -> Evaluator:
    return Evaluator(Request(nothing.__code__, nothing, []), Policy(), History(), None)


@pytest.fixture
def m() -> Iterator[Evaluator]:
    evaluator = fresh()
    yield evaluator
    evaluator.close()
