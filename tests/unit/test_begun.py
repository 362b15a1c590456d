"""Kernels of a forward are built while its backward is prepared, and errors come where they are waited for."""

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
    usual = build.begin_loading

    def begin(sources: Sequence[str], words: Sequence[str]) -> Callable[[], Any]:
        found.append("begun")
        wait = usual(sources, words)
        return lambda: found.append("waited for") or wait()

    monkeypatch.setattr("stoker.codegen.cpp.backend.begin_loading", begin)
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


def test_inference_waits_at_once(told: list[str]) -> None:
    with torch.no_grad():
        stoker.compile(_program)(torch.ones(3, 4))
    assert told == ["begun", "waited for"]


def test_a_compiler_that_is_missed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both graphs run through ATen, as if it had been missed at once."""

    def begin(sources: Sequence[str], words: Sequence[str]) -> Callable[[], Any]:
        def wait() -> Any:
            raise build.NoCompiler

        return wait

    monkeypatch.setattr("stoker.codegen.cpp.backend.begin_loading", begin)
    torch.testing.assert_close(_trained(stoker.compile(_program)), _trained(_program))
    assert [e.subject for e in stoker.events("backend")][-2:] == ["a graph runs through ATen"] * 2
