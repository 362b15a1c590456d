"""Labels of the program: a profiler that is on sees those inside a graph around it, each once, and what they say may vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import stoker

LABELS = ("outside", "first", "inner", "second", "layer")
X = torch.ones(3)


def one(x: Any) -> Any:
    with record_function("first"):
        y = x.sin() + 1
        with record_function("inner"):
            y = y * 2
    return y


def two(x: Any) -> Any:
    with record_function("first"):
        y = x.sin() + 1
    print("a break")
    with record_function("second"):
        return y * 2


@record_function("layer")
def decorated(x: Any) -> Any:
    return x.exp()


def called(x: Any) -> Any:
    return decorated(x) + 1


def _seen(call: Callable[..., Any]) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU]) as found, record_function("outside"):
        call(X)
    labels = [event for event in found.events() if event.name in LABELS]
    return [event.name for event in sorted(labels, key=lambda e: (e.time_range.start, -e.time_range.end))]


@pytest.mark.parametrize("function", [one, two, called])
def test_labels(function: Callable[..., Any]) -> None:
    compiled = stoker.compile(function)
    torch.testing.assert_close(compiled(X), function(X))
    assert _seen(compiled) == _seen(function)
    torch.testing.assert_close(compiled(X), function(X))


def test_a_label_in_a_loop_is_shown_once() -> None:
    def loop(x: Any) -> Any:
        for _ in range(3):
            with record_function("layer"):
                x = x.sin()
        return x

    compiled = stoker.compile(loop, fullgraph=True)
    assert _seen(compiled) == ["outside", "layer"]


def test_labels_that_vary_compile_nothing_again() -> None:
    def labelled(x: Any, step: int, name: str) -> Any:
        with record_function(f"{name} {step}"), record_function(name):
            return x + 1

    compiled = stoker.compile(labelled, backend="eager")
    stoker.log.clear()
    for step in range(5):
        torch.testing.assert_close(compiled(X, step, f"name {step}"), X + 1)
    assert len(stoker.events("captured")) <= 2
