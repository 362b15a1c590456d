"""Nodes that compute the same are known, and those that only look so are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.graph.dedupe import dedupe

A, B = torch.randn(3, 4), torch.randn(3, 4)


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (lambda a, b: a.exp() + a.exp(), 1),
        (lambda a, b: (a + b).exp() * (b + a).exp(), 2),
        (lambda a, b: (a - b) * (b - a), 0),
        (lambda a, b: torch.add(a, b, alpha=2) * torch.add(b, a, alpha=2), 0),
        (lambda a, b: (a * 1.5) + (a * 1.5).exp(), 1),
        (lambda a, b: (a == 1) ^ (a == 1.0), 0),
        (lambda a, b: torch.rand_like(a) + torch.rand_like(a), 0),
    ],
)
def test_repeated_nodes(functional: Any, program: Callable[..., Any], count: int) -> None:
    assert len(dedupe(functional(program, A, B).graph)) == count


def test_the_order_that_decides_strides_matters(functional: Any) -> None:
    program = lambda a, b: ((a + b).exp(), (b + a).exp())  # noqa: E731
    a, b = torch.randn(3, 3), torch.randn(3, 3).t()
    found, expected = stoker.compile(program)(a, b), program(a, b)
    for mine, eager in zip(found, expected):
        assert mine.stride() == eager.stride()
        torch.testing.assert_close(mine, eager)
    assert expected[0].stride() != expected[1].stride()
    assert not dedupe(functional(lambda a, b: (a + b).sum() * (b + a).sum(), a, b).graph)
