"""Two objects from outside are compared, or looked up, by identity; at another call they are one and the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


class Thing: ...


A, B, C = Thing(), Thing(), Thing()
TABLE, LIST = {A: 1, B: 2}, [A, B]
WEAK = weakref.WeakKeyDictionary(TABLE)
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda one, other: one is other,
    "equal": lambda one, other: one == other,
    "in a dictionary from outside": lambda one, other: one in TABLE,
    "in a weak dictionary from outside": lambda one, other: one in WEAK,
    "in a list from outside": lambda one, other: one in LIST,
    "in a list": lambda one, other: [other, A].index(one) if one in [other, A] else -1,
    "in a set": lambda one, other: (one in {other}, len({one, other})),
    "in a dictionary": lambda one, other: ({other: 1}.get(one), len({one: 1, other: 2})),
    "as a part of a key": lambda one, other: (one, 1) in {(other, 1): 2},
    "dict.fromkeys": lambda one, other: len(dict.fromkeys([one, other])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_or_two(name: str) -> None:
    function = PROGRAMS[name]
    run = stoker.compile(lambda x, one, other: (x + 1, function(one, other)), backend="eager", fullgraph=True)
    for pair in ((C, A), (A, B), (A, A), (B, B), (C, C), (C, B)):
        assert run(torch.ones(1), *pair)[1] == function(*pair), pair


def test_tensors_as_keys() -> None:
    run = stoker.compile(lambda x, y: (x + 1, len({x: 1, y: 2})), backend="eager", fullgraph=True)
    x, y = torch.ones(1), torch.ones(1)
    assert [run(*pair)[1] for pair in ((x, y), (x, x), (y, x))] == [2, 1, 2]
