"""Numbers that count on from call to call: what is asked of them is guarded, and they stay symbols."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedulers

import stoker

MOST_COMPILED = 4
"""Of some ten calls: once, once more because the number is seen to vary, and once for each other answer."""

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "below a float": lambda s: 1 if s.n < 6.5 else 2,
    "not above a float": lambda s: 1 if s.n <= 6.0 else 2,
    "a float below": lambda s: 1 if 6.5 < s.n else 2,
    "above a share": lambda s: 1 if s.n >= 0.3 * s.total else 2,
    "never equal": lambda s: 1 if s.n == 2.5 else 2,
    "not equal": lambda s: 1 if s.n != 40.0 else 2,
    "a share of all": lambda s: 1 if s.n / s.total <= 0.4 else s.n / s.total,
    "in a formula": lambda s: s.n * 2 if 1.0 + s.n / s.total - 0.25 > 1.0 else 3.0,
    "as a float": lambda s: 1 if float(s.n + 1) <= 6.5 else s.n,
    "beside infinity": lambda s: 1 if s.n < s.most else 2,
    "rounded down": lambda s: math.floor(1 + s.n / s.total),
    "rounded up": lambda s: math.ceil(s.n * 0.1),
    "rounded": lambda s: round(s.n / 30.0),
    "cut": lambda s: int(s.n / 7.3) + s.n,
    "not in a set": lambda s: 1 if s.n in {40, 50} else s.n,
    "not in a dictionary": lambda s: {40: 1, 50: 2}.get(s.n, 3) + s.n,
    "not among the milestones": lambda s: s.n * 0.5 if s.n not in s.milestones else 7.0,
    "not in a tuple": lambda s: s.n if s.n in (40, 50) else s.n * 2,
    "rounded and used": lambda s: 1.0 + s.n / s.total - math.floor(1 + s.n / s.total),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_asked(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]

    def f(x, state):
        y = x * program(state)
        state.n += 1
        return y

    def run(f: Any) -> list[torch.Tensor]:
        state = SimpleNamespace(n=1, total=30.0, most=math.inf, milestones=Counter([40, 50]))
        return [f(torch.ones(2), state) for _ in range(11)]

    before = len(stoker.events("captured"))
    torch.testing.assert_close(run(stoker.compile(f, dynamic=dynamic)), run(f), rtol=0, atol=0)
    assert len(stoker.events("captured")) - before <= MOST_COMPILED


@pytest.mark.parametrize("number", [0, 1, -7, 2**53 - 1, 2**53, 2**53 + 1, 2**60 + 1, -(2**53) - 1])
def test_large_integers_beside_floats(number: int) -> None:
    def f(x, n):
        return x + (n <= 2.0**53) + 2 * (n < 2.0**53) + 4 * (n == 2.0**53) + 8 * (2.0**60 >= n) + 16 * (n > -0.5)

    compiled = stoker.compile(f, dynamic=True)
    for n in (3, 5, number, number + 1, 9):
        assert compiled(torch.zeros(()), n) == f(torch.zeros(()), n)


def test_sizes_beside_floats() -> None:
    def f(x):
        return x.sum() * (2 if x.shape[0] * 0.3 > 2.5 else 3) + (x.shape[1] >= 2.5) + math.floor(x.shape[0] / 2.5)

    compiled = stoker.compile(f, dynamic=True)
    for rows in (3, 4, 9, 12, 2, 8):
        for columns in (2, 3):
            x = torch.ones(rows, columns)
            assert compiled(x) == f(x)


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "one cycle": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=40),
    "milestones": lambda o: schedulers.MultiStepLR(o, [30, 60]),
    "steps": lambda o: schedulers.StepLR(o, 20),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 20),
    "restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 20),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, step_size_up=20, cycle_momentum=False),
    "polynomial": lambda o: schedulers.PolynomialLR(o, total_iters=20),
    "of a function": lambda o: schedulers.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_inside_a_step(name: str) -> None:
    def run(compile: Callable[[Any], Any]) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = SCHEDULERS[name](optimizer)

        def step(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            scheduler.step()

        found, step = [], compile(step)
        for _ in range(9):
            step(torch.ones(3, 2))
            found += [float(scheduler.get_last_lr()[0]), model.weight.sum().item()]
        return found

    before = len(stoker.events("captured"))
    assert run(lambda f: stoker.compile(f, backend="aot_eager")) == pytest.approx(run(lambda f: f), rel=1e-6)
    assert len(stoker.events("captured")) - before <= MOST_COMPILED
