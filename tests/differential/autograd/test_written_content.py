"""What is written to inputs may be what is returned, another input, or a view of either: memory and strides are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def swaps(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    return a + b


def rotates(a, b):
    c = a * 1
    a.copy_(b)
    b.copy_(c)
    return c


def both_get_one(a, b):
    t = a + b
    a.copy_(t)
    b.copy_(t)
    return t, t.t()


def expands(a, b):
    t = a + 1
    b.copy_(t)
    return t.expand(2, *t.shape)


def leaves_gaps(a, b):
    t = a + 1
    b.copy_(t)
    return t[:, ::2]


def gives_other(a, b):
    a.copy_(b.t())
    return a.t(), b


def views_of_a_copy(a, b):
    t = a + 1
    t.copy_(b)
    return t.reshape(-1)


def part_of_a_copy(a, b):
    t = torch.empty_like(a)
    t.copy_(b)
    return t.chunk(2)[0], t.unbind(0)[2]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize(
    "program", [swaps, rotates, both_get_one, expands, leaves_gaps, gives_other, views_of_a_copy, part_of_a_copy]
)
def test_as_in_eager(program: Callable[..., Any], backend: str) -> None:
    def run(function: Callable[..., Any]) -> tuple[list[torch.Tensor], Any, Any]:
        given = [torch.arange(9.0).view(3, 3), torch.full((3, 3), 2.0)]
        found = function(*given)
        values = [*(found if isinstance(found, tuple) else [found]), *given]
        places = [v.untyped_storage().data_ptr() for v in values]
        return values, [places.index(p) for p in places], [v.stride() for v in values]

    got, want = run(stoker.compile(program, backend=backend)), run(program)
    torch.testing.assert_close(got[0], want[0])
    assert got[1:] == want[1:]
