"""Python's and numpy's generators of random numbers: what is drawn is an input of the graph, and the generators move on."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from harness import BREAK, program

import stoker
from stoker import log

X = torch.linspace(0.1, 0.9, 6).reshape(2, 3)
OWN, STATE, MODERN = random.Random(5), np.random.RandomState(2), np.random.default_rng(3)


def floats(x):
    return x * random.random() + random.uniform(1, 2), random.gauss(0, 1), random.triangular(), random.betavariate(1, 2)


def integers(x):
    return x + random.randint(1, 5), random.randrange(10), random.getrandbits(3), random.randrange(0, 10, 2)


def a_branch(x):
    return x + 1 if random.random() < 0.5 else x - 1


def a_loop(x):
    for _ in range(3):
        x = x * OWN.random() + OWN.uniform(-1, 1)
    return x


def a_size(x):
    return x.new_zeros(random.randint(2, 6)) + x.sum()


def sliced(x):
    return x.repeat(1, 4)[:, random.randrange(3, 6) :]


def not_looked_at(x):
    chance = np.random.uniform(0, 1)
    skipped = x.dim() > 9 and chance < 0.5
    return x * 2, skipped


def legacy(x):
    return x * np.random.rand() + np.random.uniform(1, 2), np.random.randint(0, 9), np.random.normal(), STATE.rand()


def arrays(x):
    return x * torch.from_numpy(np.random.randn(2, 3)), np.random.normal(size=(2, 3)), np.random.permutation(4)


def modern(x):
    return x * MODERN.random() + torch.from_numpy(MODERN.normal(size=3)), MODERN.uniform(2, 3)


def seeded(x):
    np.random.seed(4)
    random.seed(3)
    return x * np.random.rand() + random.random()


def mixed(x):
    a, b = random.random(), OWN.random()
    return x * a + torch.rand(3) * b, random.random(), np.random.rand()


def with_dropout(x):
    return torch.nn.functional.dropout(x, random.random() * 0.5) + torch.rand(1)


def refused(x):
    try:
        return x * random.randint(5, 1)
    except ValueError as error:
        return x * 2, len(str(error)), random.random()


def seeded_by_torch(x):
    y = x * 2
    torch.manual_seed(7)
    return y + torch.rand(3), torch.nn.functional.dropout(x, 0.5), torch.manual_seed is None


PROGRAMS = [
    seeded_by_torch, floats, integers, a_branch, a_loop, a_size, sliced, not_looked_at, legacy, arrays, modern, seeded, mixed, with_dropout, refused,
]  # fmt: skip


def observed(function: Any) -> list[Any]:
    """Results of some calls, and what the generators give afterwards."""
    random.seed(1), np.random.seed(1), torch.manual_seed(1), OWN.seed(5), STATE.seed(2)
    MODERN.bit_generator.state = np.random.default_rng(3).bit_generator.state
    results = [function(X) for _ in range(6)]
    after = [random.random(), np.random.rand(), torch.rand(1), OWN.random(), STATE.rand(), MODERN.random()]
    return [results, after]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_equal(function, backend):
    log.clear()
    stoker.reset()
    wanted = observed(function)
    found = observed(stoker.compile(function, backend=backend, fullgraph=True))
    torch.testing.assert_close(found, wanted)
    assert len(log.events("captured")) <= 2


def test_gradients():
    found = []
    for compiles in (lambda f: f, lambda f: stoker.compile(f, fullgraph=True)):
        random.seed(1)
        x = X.clone().requires_grad_()
        step = compiles(lambda x: (x * random.random()).sin().sum() * random.uniform(1, 2))
        for _ in range(3):
            step(x).backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def test_an_error_is_taken_back():
    """A graph that raises has drawn nothing: CPython runs the program from its start."""

    def program(x, places):
        y = x * random.random()
        return y[places] + random.random()

    states = []
    for compiles in (lambda f: f, stoker.compile):
        random.seed(1)
        call = compiles(program)
        call(X, torch.tensor([0]))
        with pytest.raises(IndexError):
            call(X, torch.tensor([7]))
        states.append(random.getstate())
    assert states[0] == states[1]


class Biased(random.Random):
    def random(self):
        return 0.5


@program("a generator of the user's class", inputs=lambda: (torch.ones(2), Biased(3)))
def test_own_class(x, generator):
    return x * generator.random()


@program("a generator from outside", inputs=lambda: (torch.ones(2), random.Random(3)))
def test_argument(x, generator):
    return x * generator.random() + generator.randint(1, 9)


@program("random.choice, sample and shuffle")
def test_choices(x):
    y = x * 2
    order = [1, 2, 3]
    random.shuffle(order)
    return y, random.choice([1, 2]), random.sample(range(9), 2), order


@program("a break between draws", BREAK)
def test_break(x):
    y = x * random.random()
    print(y.sum() > 1000)
    return y * random.random(), random.random()


@program("torch.manual_seed after a draw")
def test_seed_after_draw(x):
    y = x + torch.rand(3, 4)
    torch.manual_seed(3)
    return y, torch.rand(2)


@program("torch.manual_seed twice, and before a break", BREAK)
def test_seed_before_break(x):
    torch.manual_seed(3)
    torch.manual_seed(4)
    y = torch.rand(2)
    print(y.sum() > 1000)
    return y, torch.rand(2)


def test_seeding_by_a_function_that_torch_has_wrapped(monkeypatch):
    """Loading some of torch's modules puts wrappers in the place of functions, in processes that use them; maybe around others."""
    wrapped = torch._disable_dynamo(torch._disable_dynamo(torch.random.manual_seed))
    monkeypatch.setattr(torch, "manual_seed", wrapped)

    def program(x):
        torch.manual_seed(5)
        return x + torch.rand(3)

    x = torch.zeros(3)
    assert torch.equal(stoker.compile(program, fullgraph=True)(x), program(x))
