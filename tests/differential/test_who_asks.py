"""Programs that ask whether they are compiled."""

from __future__ import annotations

import pytest
import torch

import stoker


def masked(x, mask=None):
    if mask is None and not torch.compiler.is_compiling():
        mask = torch.ones(x.shape[0])
    return x * mask.sum(), mask.shape[0]


def test_a_program_that_raises_only_where_it_is_compiled() -> None:
    """It hears what it hears in eager, and is one graph."""
    compiled = stoker.compile(masked, fullgraph=True)
    for size in (3, 4, 5):
        x = torch.randn(size)
        (found, length), (expected, wanted) = compiled(x), masked(x)
        torch.testing.assert_close(found, expected)
        assert length == wanted


def refusing(x):
    if torch.compiler.is_compiling() and x.shape[0] == 2:
        pass
    if x.shape[0] == 3:
        raise ValueError("three")
    return x + 1, torch.compiler.is_compiling()


def test_errors_of_the_program_are_its_own() -> None:
    compiled = stoker.compile(refusing)
    assert compiled(torch.ones(2))[1] is True
    for _ in range(2):
        with pytest.raises(ValueError, match="three"):
            compiled(torch.ones(3))
    assert torch.equal(compiled(torch.ones(2))[0], torch.full((2,), 2.0))
