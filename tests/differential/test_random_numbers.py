"""Random numbers of Python and numpy: the same numbers, and generators in the same state afterwards."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import log


def _python(x, r, told):
    told.append(r.randint(1, 9))
    y = x * r.random() + r.uniform(1, 2)
    items = [1, 2, 3, 4]
    r.shuffle(items)
    return (
        y * items[0],
        r.choice("abc"),
        r.sample(range(10), 3),
        r.gauss(0, 1),
        r.choices([1, 2], k=3),
        r.getrandbits(7),
    )


def _branches(x, r, told):
    for _ in range(3):
        x = x * 2 if r.random() < 0.5 else x - r.randrange(5)
        told.append(r.random())
    return x


def _seeded(x, r, told):
    r.seed(3)
    state = r.getstate()
    first = r.random()
    r.setstate(state)
    told.append(first == r.random())
    made = random.Random(7)
    return x * first + made.random(), made.randint(0, 100)


def _module(x, r, told):
    told.append(random.randint(0, 9))
    return x * random.random(), random.sample([1, 2, 3], 2), random.betavariate(1, 2)


def _numpy(x, r, told):
    told.append(int(r.integers(0, 9)))
    noise = torch.from_numpy(r.standard_normal(3).astype(np.float32))
    return x + noise, r.random(), r.permutation(4), r.choice([1, 2, 3])


def _old_numpy(x, r, told):
    told.append(int(r.randint(9)))
    return x * float(r.rand()), r.randn(2), r.permutation(3)


def _global_numpy(x, r, told):
    made = np.random.default_rng(3)
    return (
        x * float(np.random.rand()) + float(made.random()),
        np.random.randn(3),
        np.random.uniform(1, 2),
        np.random.choice(5),
    )


PROGRAMS = [
    (_python, lambda: random.Random(5), random.Random.getstate),
    (_branches, lambda: random.Random(6), random.Random.getstate),
    (_seeded, lambda: random.Random(5), random.Random.getstate),
    (_module, lambda: None, lambda r: random.getstate()),
    (_numpy, lambda: np.random.default_rng(3), lambda r: r.bit_generator.state),
    (_old_numpy, lambda: np.random.RandomState(3), lambda r: r.get_state()[1].tolist()),
    (_global_numpy, lambda: None, lambda r: np.random.get_state()[1].tolist()),
]


def _run(f: Any, make: Any, state: Any) -> Any:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    given, told, found = make(), [], []
    for _ in range(3):
        found.append(f(torch.ones(3), given, told))
    return repr((found, told, state(given)))


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program, make, state", PROGRAMS, ids=lambda part: getattr(part, "__name__", ""))
def test_same_numbers(program: Any, make: Any, state: Any, backend: str) -> None:
    assert _run(stoker.compile(program, backend=backend), make, state) == _run(program, make, state)


def test_one_break_with_a_reason() -> None:
    def noisy(x):
        y = x * 2
        return random.choice([y, y + 1])

    log.clear()
    stoker.compile(noisy, backend="eager")(torch.ones(2))
    (found,) = log.events("break")
    assert "choice" in found.reason and "draw" in found.reason
