"""What no loop changes stands before the loops."""

from __future__ import annotations

import re

import pytest
import torch

import stoker
from stoker import pipeline
from stoker.codegen.backend import Building


def sources(f, *args, **settings) -> list[str]:
    """The kernels of a call, as C++, without what all begin with."""
    record: list[str] = []
    begin = pipeline.begin_kernels

    def noted(*given, **options):
        made = begin(*given, **options).wait()
        record.extend(k.source[k.source.index('extern "C" int kernel') :] for k in made)
        return Building(lambda: made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "begin_kernels", noted)
        result = stoker.compile(f, **settings)(*args)
    torch.testing.assert_close(result, f(*args))
    return record


def before_loop(source: str) -> str:
    return source[: re.search(r"for \(", source).start()]


def test_a_power_of_one_number() -> None:
    (source,) = sources(lambda x, t: x / (1 - 0.9**t).sqrt(), torch.randn(100), torch.tensor(3.0))
    assert "pow_of" in before_loop(source) and "sqrt_of" in before_loop(source)


def test_of_an_element() -> None:
    (source,) = sources(lambda x, y: x * y[2].exp(), torch.randn(100), torch.randn(4))
    assert "exp_of" in before_loop(source)


def test_what_moves_stays() -> None:
    (source,) = sources(lambda x, y: x * y.exp(), torch.randn(5, 100), torch.randn(100))
    assert "exp_of" not in before_loop(source)


def test_what_is_cheap_or_known_stays() -> None:
    (source,) = sources(lambda x, t: x * t, torch.randn(100), torch.tensor(3.0))
    assert "a1[0]" not in before_loop(source)


def test_sizes_that_are_symbols() -> None:
    """Where there is nothing to compute, nothing is read."""
    f = lambda x, y: x * y[0].exp()  # noqa: E731
    (source,) = sources(f, torch.randn(7), torch.randn(7), dynamic=True)
    assert "return 0;" in before_loop(source)


def test_what_is_looked_up_stays_behind_its_index() -> None:
    (source,) = sources(lambda x, t, i: x * t[i].exp(), torch.randn(100), torch.randn(5), torch.tensor([3]))
    assert source.index("outside") < source.index("exp_of")
