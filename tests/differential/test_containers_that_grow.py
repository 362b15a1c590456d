"""Deques and sets from outside that captured code adds to: what is added is added, and what nobody asks for is no guard."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

X = torch.arange(3.0)
RECENT: deque[Any] = deque(maxlen=3)
NAMES: set[Any] = set()


def appends(x, q, s):
    q.append(x.sum())
    return x * 2


def at_both_ends(x, q, s):
    q.append(x)
    q.appendleft(x + 1)
    q.extend([x + 2, "end"])
    q.extendleft((1, 2))
    q += [3]
    return x


def to_globals(x, q, s):
    RECENT.append(x + 1)
    NAMES.add("seen")
    return x


def adds(x, q, s):
    s.add("a")
    s.add(x.shape[0])
    return x + 1


def adds_and_takes(x, q, s):
    s.add("a")
    s.discard("a")
    s.discard(7)
    s.update(n for n in range(3))
    return x + 1


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recent: deque[Any] = deque(maxlen=2)
        self.sizes: set[Any] = set()

    def forward(self, x, q, s):
        self.recent.append(x.mean())
        self.sizes.add(tuple(x.shape))
        return x * 2


STEADY = [appends, at_both_ends, to_globals, adds, adds_and_takes]


def then_asks(x, q, s):
    q.append(x)
    s.add("b")
    return x * len(q) + len(s)


def then_reads(x, q, s):
    q.appendleft(x + 1)
    q.append(x + 2)
    return q[0] * 2 + q[-1]


def then_iterates(x, q, s):
    q.append(x)
    s.add(5)
    return sum(part.sum() for part in q if isinstance(part, torch.Tensor)) + sum(1 for e in s if e == 5)


def then_pops(x, q, s):
    q.append(x)
    q.appendleft(x + 1)
    s.add(9)
    s.remove(9)
    return q.pop() + q.popleft()


def then_tests(x, q, s):
    s.discard(1)
    if 1 in s or "a" not in s:
        s.add(1)
    return x * len({*s, 1})


def then_empties(x, q, s):
    q.append(x)
    q.clear()
    s.add(2)
    s.clear()
    q.append(x * 2)
    s.add(3)
    return x


def then_shows(x, q, s):
    return x + len(f"{s}"), str(q.maxlen)


def then_copies(x, q, s):
    s.add("c")
    other = set(s) | {8}
    q.append(1)
    return x * len(other), len(q.copy()), s >= {"c"}


def hands_on(x, q, s):
    q.append(s)
    s.add("d")
    return q, x


ALL = [
    *STEADY,
    then_asks,
    then_reads,
    then_iterates,
    then_pops,
    then_tests,
    then_empties,
    then_shows,
    then_copies,
    hands_on,
]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, (list, tuple, deque, set)) else value


def _run(function: Any) -> Any:
    RECENT.clear(), NAMES.clear()
    q: deque[Any] = deque([X], maxlen=6)
    s: set[Any] = {1}
    found = []
    for step in range(5):
        found.append(_plain(function(X + step, q, s)))
        found.append((_plain(q), _plain(s), _plain(RECENT), _plain(NAMES)))
        s.add(f"outside {step}")
        if step == 2:
            q.append(X)
    return found


@pytest.mark.parametrize("program", ALL)
def test_as_in_eager(program: Any) -> None:
    assert _run(stoker.compile(program, backend="eager")) == _run(program)


@pytest.mark.parametrize("program", STEADY)
def test_growing_is_no_recompile(program: Any) -> None:
    log.clear()
    _run(stoker.compile(program, backend="eager", fullgraph=True))
    assert not log.events("recompile")


def test_on_a_module() -> None:
    def run(model: Any) -> Any:
        results = [model(X + n, None, None) for n in range(4)]
        return _plain([results, model.recent, model.sizes])

    log.clear()
    assert run(stoker.compile(Remembers())) == run(Remembers())
    assert not log.events("recompile")
