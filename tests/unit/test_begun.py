"""Kernels of a forward are built while its backward is prepared, those of a backward while the forward runs, and errors come where they are
waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import stoker
from stoker.runtime import build


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    class Told(build.Loading):
        def __init__(self, sources: Sequence[str], words: Sequence[str]) -> None:
            found.append("begun")
            super().__init__(sources, words)

        def __call__(self) -> Any:
            found.append("waited for")
            return super().__call__()

    monkeypatch.setattr("stoker.codegen.cpp.backend.begin_loading", Told)
    return found


def _trained(f: Callable[..., Any]) -> torch.Tensor:
    x = torch.arange(12.0).view(3, 4).requires_grad_()
    f(x).backward()
    assert x.grad is not None
    return x.grad


def _program(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.exp().sum(0)).sum()


def test_both_are_begun_before_one_is_waited_for(told: list[str]) -> None:
    torch.testing.assert_close(_trained(stoker.compile(_program)), _trained(_program))
    assert told == ["begun", "begun", "waited for", "waited for"]


def test_a_backward_is_waited_for_when_it_is_called(told: list[str]) -> None:
    compiled = stoker.compile(_program)
    loss = compiled(torch.ones(3, 4, requires_grad=True))
    assert told == ["begun", "begun", "waited for"]
    loss.backward()
    compiled(torch.ones(3, 4, requires_grad=True)).backward()
    assert told == ["begun", "begun", "waited for", "waited for"]


def test_explain_waits_for_it(told: list[str]) -> None:
    compiled = stoker.compile(_program)
    assert len(stoker.explain(compiled, torch.ones(3, 4, requires_grad=True)).compiled) == 2
    assert told == ["begun", "begun", "waited for", "waited for"]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_backward_that_cannot_be_built(is_strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is differentiated as captured, and a report says so."""
    monkeypatch.setenv("STOKER_STRICT", str(int(is_strict)))
    begun: list[build.Loading] = []

    class Failing(build.Loading):
        def __call__(self) -> Any:
            begun.append(self)
            if self is not begun[0]:
                raise ValueError("injected")
            return super().__call__()

    monkeypatch.setattr("stoker.codegen.cpp.backend.begin_loading", Failing)
    stoker.log.clear()
    compiled = stoker.compile(_program)
    if is_strict:
        with pytest.raises(ValueError, match="injected"):
            _trained(compiled)
        return
    for _ in range(2):
        torch.testing.assert_close(_trained(compiled), _trained(_program))
    assert "injected" in stoker.events("defect")[0].reason


def test_inference_waits_at_once(told: list[str]) -> None:
    with torch.no_grad():
        stoker.compile(_program)(torch.ones(3, 4))
    assert told == ["begun", "waited for"]


def test_a_compiler_that_is_missed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both graphs run through ATen, as if it had been missed at once."""

    class Missing(build.Loading):
        def __call__(self) -> Any:
            raise build.NoCompiler

    monkeypatch.setattr("stoker.codegen.cpp.backend.begin_loading", Missing)
    torch.testing.assert_close(_trained(stoker.compile(_program)), _trained(_program))
    assert [e.subject for e in stoker.events("backend")][-2:] == ["a graph runs through ATen"] * 2
