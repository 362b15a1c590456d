"""Numbers drawn from lists, as indices, and from generators that are made or seeded inside: one graph, eager's numbers, and eager's states."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import log

GENERATOR = torch.Generator()
OWN = random.Random(3)
NEW = np.random.default_rng(5)
OLD = np.random.RandomState(5)


def choice(x):
    return x * random.choice([1.0, 2.0, 3.0]) + OWN.choice(range(5))


def choices(x):
    return x * sum(random.choices([1, 2, 3], weights=[1, 2, 3], k=2)), OWN.choices((0.5, 1.5), k=2)


def sample(x):
    return x[random.sample(range(4), 2)] * 2, OWN.sample([1, 2, 3], 2)


def shuffle(x):
    order, kept = list(range(4)), [1.5, 2.5]
    random.shuffle(order)
    OWN.shuffle(kept)
    return x[order] * kept[0], kept, order


def written_through_a_list(x):
    rows = random.sample(range(4), 2)
    y = x.clone()
    y[rows] = 0
    return y, y[:, [rows[0] % 3, 1]]


def array_indices(x):
    a, b = np.random.randint(0, 3, size=2), np.random.permutation(x.shape[0])
    return x[a], x[b] + x[torch.from_numpy(b)], x[NEW.permutation(4), 0], x[:, a]


def array_choices(x):
    return x[np.random.choice(4, 2, replace=False)], x[NEW.choice(4, 2)], x[OLD.choice(4, 3)]


def array_masks(x):
    return torch.where(torch.tensor(OLD.rand(4, 3) > 0.5), x, 0), x[np.array([True, False, True, True])]


def one_number_of_numpy(x):
    return x * NEW.random() + x[np.random.choice(4)] + NEW.choice([2.0])


def tensors_of_arrays(x):
    noise = np.random.randn(3)
    made = torch.tensor(noise, dtype=torch.float32), torch.as_tensor(noise, dtype=torch.float32)
    noise = noise * 2
    return x + made[0] + made[1] + torch.as_tensor(noise).float()


def made_inside(x):
    r = random.Random(7)
    order = [0, 1, 2, 3]
    r.shuffle(order)
    return x[order] * r.random() + r.randint(0, 4) + r.choice([1, 2, 3]), r.sample(range(9), 3), r


def made_inside_by_numpy(x):
    new, old = np.random.default_rng(4), np.random.RandomState(0)
    y = x + torch.from_numpy(new.standard_normal((4, 3))).float() * new.random() + new.integers(0, 9)
    return y + torch.from_numpy(old.randn(4, 3)).float(), old.permutation(3), new


def written_after_a_draw(x):
    a = np.random.RandomState(0).rand(3)
    a += 1
    return x * torch.from_numpy(a)


def generator_inside(x):
    g = torch.Generator().manual_seed(3)
    h = torch.Generator(device=x.device)
    return x + torch.randn(3, generator=g) + torch.rand(4, 3, generator=h), g


def generator_inside_by_steps(x):
    g = torch.Generator()
    g.manual_seed(4)
    noise = torch.empty(4, 3).normal_(generator=g)
    order = torch.randperm(4, generator=g)
    return (
        (x + noise)[order],
        torch.bernoulli(x.sigmoid(), generator=g),
        torch.multinomial(x.softmax(-1), 2, generator=g),
    )


def generator_seeded(x):
    GENERATOR.manual_seed(8)
    return x + torch.rand(3, generator=GENERATOR) + torch.rand(3)


def generator_given(x):
    return x * (torch.rand(x.shape, generator=GENERATOR) > 0.3) + torch.randint(0, 5, (3,), generator=GENERATOR)


def without_a_seed(x):
    r = random.Random()
    r.seed(3)
    return x * r.random()


def seeded_again(x):
    g = torch.Generator().manual_seed(3)
    first = torch.rand(3, generator=g)
    g.manual_seed(5)
    return x + first + torch.rand(3, generator=g)


def states(x):
    before = GENERATOR.get_state()
    first = torch.rand(3, generator=GENERATOR)
    GENERATOR.set_state(before)
    return x + first + torch.rand(3, generator=GENERATOR)


def forked(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        y = torch.randn(3)
    return x + y + torch.rand(3)


ONE_GRAPH = [
    choice, choices, sample, shuffle, written_through_a_list, array_indices, array_choices, array_masks, tensors_of_arrays,
    one_number_of_numpy, made_inside, made_inside_by_numpy, written_after_a_draw, generator_inside, generator_inside_by_steps,
    generator_seeded, generator_given, without_a_seed, seeded_again, states, forked,
]  # fmt: skip


def of_tensors(x):
    rows = [x[0], x[1], x[2]]
    random.shuffle(rows)
    return torch.stack(rows) + random.choice([x[0], x[1]])


def of_functions(x):
    return random.choice([torch.sin, torch.cos])(x * 2)


def behind_a_break(x):
    r, g = random.Random(4), torch.Generator().manual_seed(5)
    y = x * r.random() + torch.rand(3, generator=g)
    zlib.adler32(b"")
    return y * r.random() + torch.rand(3, generator=g)


BROKEN = [of_tensors, of_functions, behind_a_break]


def _seed(number: int) -> None:
    random.seed(number)
    OWN.seed(number)
    np.random.seed(number)
    NEW.bit_generator.state = np.random.default_rng(number).bit_generator.state
    OLD.seed(number)
    torch.manual_seed(number)
    GENERATOR.manual_seed(number)


def _shown(found: Any) -> Any:
    """Results in a form that can be compared: of generators, their states."""
    match found:
        case tuple() | list():
            return [type(found).__name__, *map(_shown, found)]
        case torch.Tensor():
            return str(found.dtype), found.tolist()
        case random.Random():
            return found.getstate()
        case np.random.Generator():
            return repr(found.bit_generator.state)
        case torch.Generator():
            return found.get_state().tolist()
    return repr(found)


def _run(program: Callable[..., Any], number: int) -> Any:
    _seed(number)
    torch.manual_seed(number)
    x = torch.randn(4, 3)
    found = [_shown(program(x.clone())) for _ in range(2)]
    after = [_shown(g) for g in (random._inst, OWN, NEW, GENERATOR)]  # type: ignore[attr-defined]  # the module's own
    return found, after, repr(np.random.get_state()), repr(OLD.get_state()), torch.get_rng_state().tolist()


@pytest.mark.parametrize("program", [*ONE_GRAPH, *BROKEN], ids=lambda f: f.__name__)
def test_as_in_eager(program: Callable[..., Any]) -> None:
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for number in range(4):
        assert _run(compiled, number) == _run(program, number)
    assert bool(log.events("break")) == (program in BROKEN)
    if program in ONE_GRAPH:
        assert len(log.events("captured")) <= 4, "numbers of numpy are known in the first version"


BITS = np.random.PCG64


@pytest.mark.parametrize(
    "generators",
    [
        lambda same: [a := random.Random(1), a if same else random.Random(2)],
        lambda same: [a := np.random.RandomState(1), a if same else np.random.RandomState(2)],
        lambda same: [a := np.random.default_rng(1), np.random.Generator(a.bit_generator if same else BITS(2))],
    ],
    ids=["python", "old", "bits"],
)
def test_two_that_may_be_one(generators: Callable[[bool], list[Any]]) -> None:
    def program(x, a, b):
        return x * a.random() + b.random(), a.random()

    compiled = stoker.compile(program, backend="aot_eager")
    x = torch.ones(2, dtype=torch.float64)
    for same in (False, True, False, True):
        first, second = generators(same), generators(same)
        assert [_shown(compiled(x, *first)) for _ in range(2)] == [_shown(program(x, *second)) for _ in range(2)]
