"""Decisions on several numbers that vary: one version for each way they fall, whatever the numbers are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

X = torch.arange(6.0)

PROGRAMS: dict[str, Callable[..., Any]] = {
    "compared": lambda x, a, b: x * a if a < b else x * b,
    "their sum": lambda x, a, b: x + a if a + b <= 10.0 else x - b,
    "their quotient": lambda x, a, b: x + a if a / b > 0.5 else x - b,
    "the larger": lambda x, a, b: x * max(a, b) + min(a, b),
    "a chain": lambda x, a, b: x * a if 0.5 < a < b else x + b,
    "sorted": lambda x, a, b: x * sorted([a, b])[0] + sorted([b, a])[1],
    "a tolerance": lambda x, a, b: x * a if abs(a - b) <= 1e-3 + 1e-2 * abs(b) else x * b,
    "equal": lambda x, a, b: x if a == b else x * a,
    "with a size": lambda x, a, b: x * a if a * len(x) > b else x * b,
    "clipped": lambda x, a, b: x * (a if a < b else b if b > 0 else 1.0),
    "math": lambda x, a, b: x * a if math.isclose(a, b) or math.hypot(a, b) > 5 else x * b,
    "rounded": lambda x, a, b: x * int(a + b),
    "a list": lambda x, a, b: x * [p for p in (a, b, 2.0) if p >= min(a, b)][0],
}

RISING = [(1.0 + i / 8, 9.0 + i / 4) for i in range(6)]
BOTH_WAYS = [
    (1.0, 2.0),
    (2.5, 2.0),
    (3.0, 4.5),
    (7.5, 1.25),
    (2.0, 2.0),
    (-1.0, -0.5),
    (-1.0, -2.5),
    (0.0, 5.5),
    (4.25, 4.5),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = stoker.compile(program, dynamic=dynamic)
    for a, b in [*BOTH_WAYS, *RISING, *BOTH_WAYS]:
        for x in (X, X[:4]):
            torch.testing.assert_close(compiled(x, a, b), program(x, a, b), rtol=0, atol=0)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("rounded", "math", "sorted")])
def test_no_version_for_each_pair(name: str) -> None:
    stoker.log.clear()
    compiled = stoker.compile(PROGRAMS[name])
    for a, b in RISING:
        compiled(X, a, b)
    assert len(stoker.events("captured")) == 2


def test_an_integer_beside_a_float() -> None:
    def program(x: torch.Tensor, a: float, n: int) -> torch.Tensor:
        return x * a if a < n else x + n

    stoker.log.clear()
    compiled = stoker.compile(program)
    for a, n in [(1.5, 4), (2.5, 5), (3.5, 6), (4.5, 7)]:
        torch.testing.assert_close(compiled(X, a, n), program(X, a, n), rtol=0, atol=0)
    assert len(stoker.events("captured")) == 2
    torch.testing.assert_close(compiled(X, 9.5, 7), program(X, 9.5, 7), rtol=0, atol=0)
    assert len(stoker.events("captured")) == 3


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324])
def test_unusual_numbers(odd: float) -> None:
    for name, program in PROGRAMS.items():
        if name == "rounded":
            continue
        compiled = stoker.compile(program)
        for pair in [*RISING[:3], (odd, 2.0), (2.0, odd), (odd, odd), *RISING[3:]]:
            try:
                expected = program(X, *pair)
            except (ArithmeticError, ValueError, LookupError) as error:
                with pytest.raises(type(error)):
                    compiled(X, *pair)
                continue
            torch.testing.assert_close(compiled(X, *pair), expected, rtol=0, atol=0, equal_nan=True)


def test_numbers_of_objects() -> None:
    class Settings:
        low, high = 0.5, 1.5

    settings, bounds = Settings(), {"top": 4.0}

    def program(x: torch.Tensor, a: float) -> torch.Tensor:
        return x * a if settings.low < a < bounds["top"] else x + settings.high

    compiled = stoker.compile(program)
    for step in range(6):
        settings.low, bounds["top"] = 0.5 + step, 4.0 - step / 2
        for a in (1.25 + step, 2.25, 0.75):
            torch.testing.assert_close(compiled(X, a), program(X, a), rtol=0, atol=0)


def test_the_words_of_the_guard() -> None:
    compiled = stoker.compile(PROGRAMS["compared"])
    compiled(X, 1.0, 2.0)
    assert "a answers True to lt(f0, f1), with b" in stoker.explain(compiled, X, 1.5, 2.5).guards
