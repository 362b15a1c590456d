"""Text and numbers that only an object itself gives: they have its address in them."""

from __future__ import annotations

import pytest
import torch

import stoker
from stoker import log


class Plain:
    pass


PLAIN, OTHER = Plain(), Plain()


def _plain():
    pass


@pytest.mark.parametrize("show", [str, repr, format, hash, lambda o: f"{o!r:>80}"])
def test_what_only_an_object_itself_answers(show):
    """Its text with an address, and its number: one graph, and another object is noticed."""

    def program(x, o):
        return x + 1, show(o), x * 2

    for thing in (PLAIN, _plain):
        compiled = stoker.compile(program, backend="eager", fullgraph=True)
        assert compiled(torch.ones(1), thing)[1] == show(thing)
    broken = stoker.compile(program, backend="eager")
    for thing in (PLAIN, OTHER, Plain(), PLAIN):
        assert broken(torch.ones(1), thing)[1] == show(thing)


def test_an_object_that_is_another_in_each_call_has_no_version_for_each():
    compiled = stoker.compile(lambda x, o: x + (hash(o) == 0), backend="eager")
    log.clear()
    for thing in [Plain() for _ in range(6)]:
        compiled(torch.ones(1), thing)
    assert len(log.events("captured")) < 5
