"""What Stoker says: breaks once and at their place, graphs by their modules, recompiles with what changed."""

from __future__ import annotations

import enum
import logging
import statistics
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log
from stoker.errors import GraphBreakError

X = torch.randn(2, 4)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * 2 if y.sum().item() > 1e9 else y  # the break


class Outer(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.inner = Outer(depth - 1) if depth else Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def test_a_break_is_told_once() -> None:
    log.clear()
    explanation = stoker.explain(Outer(4), X)
    (event,) = log.events("break")
    assert explanation.break_count == 1
    assert event.location.startswith(__file__) and event.location.endswith("in Inner.forward")
    assert "# the break" in str(explanation)
    assert all(event.subject in ("Outer.forward", "Inner.forward") for event in log.events("captured"))


@pytest.mark.parametrize("model", [Outer(1), nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)])
def test_a_graphs_place_is_its_module(model: nn.Module) -> None:
    explanation = stoker.explain(model, X)
    name = f"{type(model).__name__}.forward"
    places = [graph.meta["location"] for graph in explanation.graphs]
    assert any(place.endswith(name) for place in places)
    assert not any(".py" in place for place in places if not place.startswith(__file__))
    assert all(place in str(explanation) for place in places)


def test_fullgraph_names_both_lines() -> None:
    def program(x: torch.Tensor) -> Any:
        return x + statistics.median_low([x.sum(), x.max()])  # mine

    with pytest.raises(GraphBreakError) as caught:
        stoker.compile(program, fullgraph=True, backend="eager")(X)
    words = str(caught.value)
    assert f"where:     {__file__}" in words and "# mine" in words
    assert "inside:" in words and "statistics.py" in words


def test_a_library_that_is_the_root_names_the_users_line() -> None:
    log.clear()
    compiled = stoker.compile(statistics.median_low, backend="eager")
    compiled([X.sum(), X.max()])  # called here
    reasons = [event.data for event in log.events("break")]
    assert all(reason.line.endswith("# called here") for reason in reasons)


class Holder:
    factor = 2.0


@pytest.mark.parametrize(
    ("program", "first", "second", "words"),
    [
        (lambda x: x + 1, (torch.ones(2),), (torch.ones(2, dtype=torch.float64),), ["float32", "float64"]),
        (lambda x: x + 1, (torch.ones(2),), (torch.ones(3),), ["2", "3"]),
        (lambda x, k: x * k, (X, 2.0), (X, 3.0), ["k == 2.0", "3.0"]),
        (lambda x, k: x * len(k), (X, "ab"), (X, "abc"), ["k == 'ab'", "'abc'"]),
        (lambda x, k: x * len(k), (X, [1]), (X, (1,)), ["list", "tuple"]),
        (lambda x, k: x * len(k), (X, {1}), (X, {2}), ["elements [1]", "{2}"]),
    ],
)
def test_a_recompile_says_was_and_is(program: Any, first: Any, second: Any, words: list[str]) -> None:
    log.clear()
    compiled = stoker.compile(program, backend="eager", dynamic=False)
    compiled(*first)
    compiled(*second)
    (event,) = log.events("recompile")
    assert all(word in event.reason for word in words), event.reason


class Side(enum.Flag):
    LEFT = 1
    RIGHT = 2


class Quiet(enum.IntEnum):
    ON = 1
    OFF = 0


class Told(enum.Enum):
    ONE = 1
    TWO = 2

    def __repr__(self) -> str:
        raise AssertionError("users' code is not run for words")


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (Side.LEFT, Side.RIGHT, "key is <Side.LEFT: 1>, but is <Side.RIGHT: 2>"),
        (Side.LEFT, Side.LEFT | Side.RIGHT, "key is <Side.LEFT: 1>, but is <Side.LEFT|RIGHT: 3>"),
        (Quiet.ON, Quiet.OFF, "key is <Quiet.ON: 1>, but is <Quiet.OFF: 0>"),
        (Told.ONE, Told.TWO, "key is a Told, but is another Told"),
        (2.5, None, "key is 2.5, but is None"),
    ],
)
def test_a_recompile_tells_objects_apart(first: Any, second: Any, words: str) -> None:
    kept = [first]

    def program(x: torch.Tensor, key: Any) -> torch.Tensor:
        return x * 2 if key is kept[0] else x * 3

    log.clear()
    compiled = stoker.compile(program, backend="eager")
    compiled(X, first), compiled(X, second)
    assert any(words in event.reason for event in log.events("recompile"))


def test_a_size_relation_says_is() -> None:
    log.clear()
    compiled = stoker.compile(lambda x, y: x + 1 if x.shape[0] == y.shape[0] else x, backend="eager", dynamic=True)
    compiled(torch.ones(3), torch.ones(3))
    compiled(torch.ones(3), torch.ones(4))
    (event,) = log.events("recompile")
    assert "x.shape[0] is 3" in event.reason and "y.shape[0] is 4" in event.reason


def test_blocks_of_one_class_are_no_recompiles() -> None:
    log.clear()
    model = nn.Sequential(*[Inner() for _ in range(6)])
    stoker.compile(model, backend="eager")(X)
    assert log.events("recompile") == []


def test_one_line_a_function_reaches_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    log.clear()
    with caplog.at_level(logging.WARNING, logger="stoker"):
        compiled = stoker.compile(lambda x, s: x + len(s), backend="eager", options={"version_limit": 2})
        for n in range(6):
            compiled(X, "a" * n)
        model = Outer(3)
        stoker.compile(model, backend="eager")(X)
        limited = stoker.compile(model.inner, backend="eager", options={"version_limit": 1})
        for n in range(5):
            limited(torch.ones(n + 2, 4).requires_grad_(n % 2 == 0))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len({line.split(":")[1] for line in lines}) and 1 <= len(lines) <= 3
    assert not any("torch/" in line.split("Last guard")[0] or "\n" in line for line in lines)


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_nothing_is_said_of_tensors_that_hold_nothing(needs_gradient: bool, caplog: pytest.LogCaptureFixture) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu() + torch.ones(1, device="meta")

    with caplog.at_level(logging.WARNING):
        x, w = torch.ones(2, 3, device="meta"), torch.ones(3, 4, device="meta", requires_grad=needs_gradient)
        found = stoker.compile(program, fullgraph=True)(x, w)
        if needs_gradient:
            found.sum().backward()
            assert w.grad is not None and w.grad.shape == (3, 4)
    assert (found.device.type, found.shape, found.requires_grad) == ("meta", (2, 4), needs_gradient)
    assert not caplog.records
