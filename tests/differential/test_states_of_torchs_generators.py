"""Seeds and states of torch's generators, read and written by the program: one graph, eager's numbers, and eager's states, in every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import stoker
from stoker import log

GENERATOR = torch.Generator()
KEPT: list[torch.Tensor] = []


def put_back(x):
    before = torch.get_rng_state()
    y = F.dropout(x, 0.5)
    torch.set_rng_state(before)
    return y - F.dropout(x, 0.5), before, torch.rand(2)


def put_back_in_the_middle(x):
    a = torch.rand(3, generator=GENERATOR)
    before = GENERATOR.get_state()
    b = torch.rand(3, generator=GENERATOR)
    GENERATOR.set_state(before)
    return x + a, b - torch.rand(3, generator=GENERATOR), GENERATOR.initial_seed()


def forked(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        y = torch.randn(3)
    return x + y + torch.rand(3)


def forked_without_devices(x):
    weight = torch.empty(3, 3)
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        torch.nn.init.normal_(weight)
    return x @ weight + torch.rand(3)


def not_forked(x):
    with torch.random.fork_rng(enabled=False):
        y = torch.randn(3)
    return x + y


def left_by_an_error(x):
    try:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            y = torch.rand(3)
            raise ValueError
    except ValueError:
        return x + y + torch.rand(3)


def forked_by_seeds(x):
    for step in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(torch.initial_seed() + step)
            x = x + torch.rand(3)
    return x * torch.rand(3), torch.initial_seed()


def seeded_in_the_middle(x):
    a = torch.rand(3)
    torch.manual_seed(4)
    b = torch.rand(3)
    torch.manual_seed(2**63 + 5)
    return a + x, b, torch.rand(3), torch.initial_seed()


def one_seeded_in_the_middle(x):
    a = torch.rand(3, generator=GENERATOR)
    g = GENERATOR.manual_seed(4)
    return x + a, torch.rand(3, generator=GENERATOR), g is GENERATOR


def seeded_by_data(x):
    torch.manual_seed(int(x.abs().sum().item() * 10) % 100)
    return torch.rand(3) + x


def given_to_another(x):
    g = torch.Generator()
    g.set_state(GENERATOR.get_state())
    return x + torch.rand(3, generator=g), torch.rand(3, generator=GENERATOR), g.get_state(), g.initial_seed()


def again_and_again(x):
    g = torch.Generator().manual_seed(7)
    for _ in range(3):
        before = g.get_state()
        x = x * torch.rand(3, generator=g)
        g.set_state(before)
    return x


def kept_outside(x):
    if KEPT:
        torch.set_rng_state(KEPT.pop())
    KEPT.append(torch.get_rng_state())
    return x + torch.rand(3)


def compared(x):
    before = GENERATOR.get_state().clone()
    return x + torch.rand(3), (before == GENERATOR.get_state()).all(), torch.get_rng_state().sum()


def chosen_seeds(x):
    """Other numbers in each call: what can be told is that the seeds are those that were given."""
    a, b = torch.seed(), GENERATOR.seed()
    y = torch.rand(3) + torch.rand(3, generator=GENERATOR)
    same = a == torch.initial_seed() and b == GENERATOR.initial_seed() and 0 <= a
    torch.manual_seed(1)
    GENERATOR.manual_seed(1)
    return x + y * 0, same, type(a) is int


def trained(x):
    y = (x.requires_grad_() * torch.rand(3)).sin()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = y * torch.rand(3)
    return torch.autograd.grad((y * torch.rand(3)).sum(), x)


PROGRAMS = [
    put_back, put_back_in_the_middle, forked, forked_without_devices, not_forked, left_by_an_error, forked_by_seeds, seeded_in_the_middle,
    one_seeded_in_the_middle, seeded_by_data, given_to_another, again_and_again, kept_outside, compared, chosen_seeds, trained,
]  # fmt: skip


def _run(program: Callable[..., Any], number: int) -> Any:
    KEPT.clear()
    torch.manual_seed(number)
    GENERATOR.manual_seed(number + 1)
    found = [program(torch.linspace(-1, 1, 6).reshape(2, 3) + number) for _ in range(3)]
    return found, GENERATOR.get_state(), torch.get_rng_state()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_eager(program: Callable[..., Any], backend: str) -> None:
    log.clear()
    compiled = stoker.compile(program, backend=backend)
    for number in range(3):
        torch.testing.assert_close(_run(compiled, number), _run(program, number), rtol=1e-6, atol=1e-6)
    assert not log.events("break")


@pytest.mark.parametrize("wrong", [torch.ones(3), torch.zeros(7, dtype=torch.uint8), [1], None], ids=str)
def test_what_is_no_state(wrong: Any) -> None:
    def program(x, state):
        a = torch.rand(3, generator=GENERATOR)
        torch.set_rng_state(state)
        return x + a

    compiled = stoker.compile(program)
    found = []
    for function in (program, compiled):
        GENERATOR.manual_seed(3)
        function(torch.ones(3), torch.get_rng_state())
        with pytest.raises((TypeError, RuntimeError)) as raised:
            function(torch.ones(3), wrong)
        found.append((type(raised.value), str(raised.value), GENERATOR.get_state().tolist()))
    assert found[0] == found[1]


def test_a_state_written_before_it_is_given() -> None:
    def program(x):
        state = GENERATOR.get_state()
        state[0] = state[0] + 1
        GENERATOR.set_state(state)
        return x + torch.rand(3, generator=GENERATOR), GENERATOR.initial_seed()

    compiled = stoker.compile(program, backend="aot_eager")
    assert str(_run(compiled, 3)) == str(_run(program, 3))


def test_two_that_may_be_one() -> None:
    def program(x, a, b):
        a.manual_seed(4)
        return x + torch.rand(3, generator=a) + torch.rand(3, generator=b), b.initial_seed()

    compiled = stoker.compile(program, backend="aot_eager")
    for same in (False, True, False):
        found = []
        for function in (program, compiled):
            a = torch.Generator().manual_seed(1)
            found.append(function(torch.ones(3), a, a if same else torch.Generator().manual_seed(2)))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_an_error_finds_generators_as_they_were(backend: str) -> None:
    def program(x, index):
        return (x + torch.rand(3, generator=GENERATOR))[index] * torch.rand(1)

    compiled = stoker.compile(program, backend=backend)
    found = []
    for function in (program, compiled):
        torch.manual_seed(2)
        GENERATOR.manual_seed(2)
        function(torch.ones(3), torch.tensor([1]))
        with pytest.raises(IndexError):
            function(torch.ones(3), torch.tensor([9]))
        found.append((GENERATOR.get_state().tolist(), torch.get_rng_state().tolist()))
    assert found[0] == found[1]


def test_gradients_of_gradients_draw_the_same_again() -> None:
    def program(x, g):
        return ((x * torch.rand(3, generator=g)).tanh() * x.exp()).sum()

    compiled = stoker.compile(program)
    found = []
    for function in (program, compiled):
        x, g = torch.ones(3, requires_grad=True), torch.Generator().manual_seed(5)
        (first,) = torch.autograd.grad(function(x, g), x, create_graph=True)
        found.append((first, torch.autograd.grad(first.sum(), x), g.get_state()))
    torch.testing.assert_close(*found)
