"""Lists from outside that only grow: how long they are is no reason to compile again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import program

import stoker
from stoker import log


class Trained(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.losses, self.seen = 0, [], []

    def forward(self, x):
        self.steps += 1
        self.losses.append(x.sum())
        self.seen += [self.steps, x.shape[0]]
        self.seen.extend(n for n in range(2))
        return x * self.steps


def _logged(x, told):
    told.append("before")
    y = x * 2
    told.extend([y.shape, "after"])
    return y


def _read(x, told):
    told.append(x.shape[0])
    return x * len(told)


def _read_first(x, told):
    last = told[-1]
    told.append(last + 1)
    return x * last


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_a_module_that_keeps_a_history(backend: str) -> None:
    model, other, x = Trained(), Trained(), torch.ones(3)
    compiled = stoker.compile(model, backend=backend, fullgraph=True)
    log.clear()
    for _ in range(12):
        assert torch.equal(compiled(x), other(x))
    assert model.seen == other.seen and len(model.losses) == 12
    assert [loss.item() for loss in model.losses] == [3.0] * 12
    assert len(log.events("captured")) <= 3


@pytest.mark.parametrize("function, captures", [(_logged, 1), (_read, 8), (_read_first, 8)])
def test_captures(function: Any, captures: int) -> None:
    compiled, x, told, said = stoker.compile(function, backend="eager"), torch.ones(2), [1], [1]
    log.clear()
    for _ in range(8):
        assert torch.equal(compiled(x, told), function(x, said))
    assert told == said
    assert len(log.events("captured")) <= captures


@program("a list is appended to, then read", inputs=lambda: (torch.ones(2), [1, 2]))
def test_appended_then_read(x, items):
    items.append(x)
    items += [3]
    found = len(items), items[2] is x, items[-1], 2 in items
    items.append(4)
    items.insert(0, 0)
    return x, found


@program("a list is appended to itself", inputs=lambda: (torch.ones(2), [1, 2]))
def test_itself(x, items):
    items.append(items)
    items.extend(items)
    return x, len(items), items[2] is items


@program("one list under two names", inputs=lambda: (lambda made: (torch.ones(2), made, made))([1]))
def test_two_names(x, first, second):
    first.append(2)
    second.append(3)
    return x * len(first), first is second


def test_two_lists_then_one() -> None:
    def both(x, first, second):
        first.append(1)
        return x * len(second)

    compiled, x, one = stoker.compile(both, backend="eager"), torch.ones(1), [5]
    assert compiled(x, [], [1, 2]).item() == 2
    assert compiled(x, one, one).item() == 2 and one == [5, 1]
