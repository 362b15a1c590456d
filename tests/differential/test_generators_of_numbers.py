"""torch.Generator objects of the user's: the same numbers, the same state afterwards, and the rest of the graph is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

X = torch.linspace(0.1, 0.9, 6).reshape(2, 3)
GLOBAL = torch.Generator()


def normal(x, g):
    return (x * 2 + torch.randn(2, 3, generator=g)).relu().sum(-1)


def twice(x, g):
    a = torch.rand(2, 3, generator=g)
    b = torch.rand(2, 3, generator=g)
    return (a - b).exp() * x, a * 2 + b


def beside_the_default_one(x, g):
    a = torch.rand(2, 3)
    b = torch.rand(2, 3, generator=g)
    c = torch.rand(2, 3)
    return a * x, b + a, c * b


def the_default_one_itself(x, g):
    a = torch.rand(2, 3) + x
    b = torch.rand(2, 3, generator=torch.default_generator) * a
    c = torch.rand(2, 3)
    return a, b, c


def of_the_surroundings(x, g):
    return x.sin() + torch.randint(0, 10, (3,), generator=GLOBAL)


def in_place(x, g):
    y = x.clone() + 1
    y.uniform_(2, 3, generator=g)
    y.add_(1).mul_(x)
    return y


def bernoulli_and_multinomial(x, g):
    kept = torch.bernoulli(x, generator=g)
    chosen = torch.multinomial(x, 2, generator=g)
    return (kept * x).sum() + 1, x.gather(1, chosen) * 2


def permuted(x, g):
    return x.flatten()[torch.randperm(6, generator=g)].cos() + 1


def initialised(x, g):
    weight = torch.empty(3, 3)
    nn.init.normal_(weight, generator=g)
    nn.init.uniform_(weight[0], generator=g)
    return x @ weight + 1


def seeded_inside(x, g):
    return x + torch.rand(3, generator=g).mul(2), g.initial_seed()


PROGRAMS = [
    normal, twice, beside_the_default_one, the_default_one_itself, of_the_surroundings, in_place, bernoulli_and_multinomial,
    permuted, initialised, seeded_inside,
]  # fmt: skip


def outcome(function: Any, seed: int) -> list[Any]:
    generators = [
        torch.Generator().manual_seed(seed),
        GLOBAL.manual_seed(seed + 1),
        torch.default_generator.manual_seed(3),
    ]
    results = [function(X, generators[0]) for _ in range(2)]
    return [results, [generator.get_state() for generator in generators]]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_numbers_and_states(program: Any, backend: str) -> None:
    compiled = stoker.compile(program, backend=backend)
    for seed in (0, 5):
        torch.testing.assert_close(outcome(compiled, seed), outcome(program, seed), rtol=1e-6, atol=1e-6)


def test_gradients() -> None:
    def program(x, g):
        return ((x * torch.rand(2, 3, generator=g)).tanh() * x.exp()).sum()

    compiled = stoker.compile(program)
    found = []
    for function in (program, compiled):
        x = X.clone().requires_grad_()
        generator = torch.Generator().manual_seed(4)
        function(x, generator).backward()
        found.append((x.grad, generator.get_state()))
    torch.testing.assert_close(*found)


def test_what_is_around_is_compiled() -> None:
    log.clear()
    generator = torch.Generator().manual_seed(0)
    told = stoker.explain(stoker.compile(normal), X, generator)
    assert told.kernel_count and not told.breaks
    assert not [event for event in told.happened if event.kind == "backend"]
