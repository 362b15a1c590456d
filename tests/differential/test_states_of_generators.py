"""States of generators, read and written by the program: one graph, eager's numbers, and eager's states, in every call."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import log

OWN, OTHER = random.Random(), random.Random()
NEW, NEWER = np.random.default_rng(), np.random.default_rng()
OLD = np.random.RandomState()
KEPT: dict[str, Any] = {}


def put_back(x):
    before = OWN.getstate()
    a = OWN.random()
    OWN.setstate(before)
    return x * a, a == OWN.random()


def put_back_the_module(x):
    before = random.getstate()
    a = random.random() + random.gauss(0, 1)
    random.setstate(before)
    return x * a


def nobody_sees(x):
    """What a library does that must not disturb the caller's numbers."""
    before = random.getstate()
    try:
        random.seed(5)
        rows = random.sample(range(4), 2)
    finally:
        random.setstate(before)
    return x[rows] + random.random()


def given_to_another(x):
    OTHER.setstate(OWN.getstate())
    return x * OTHER.random() - OWN.random(), OTHER.random()


def in_the_middle(x):
    a = OWN.random()
    state = OWN.getstate()
    b, c = OWN.random(), OWN.uniform(1, 2)
    OWN.setstate(state)
    return x * a + b, OWN.random() == b, OWN.random(), c


def again_and_again(x):
    state = OWN.getstate()
    for k in range(3):
        OWN.setstate(state)
        x = x * OWN.random() + k
    return x


def given_back(x):
    return x + OWN.random(), OWN.getstate(), random.getstate()


def kept_outside(x):
    KEPT["state"] = OWN.getstate()
    return x + OWN.random()


def taken_from_outside(x):
    if "saved" in KEPT:
        OWN.setstate(KEPT["saved"])
    y = x + OWN.random()
    KEPT["saved"] = OWN.getstate()
    return y


def made_inside(x):
    r = random.Random(3)
    state = r.getstate()
    a = r.random()
    r.setstate(state)
    return x * (a - r.random()) + r.random(), state, r


def made_inside_in_a_state(x):
    r = random.Random()
    r.setstate(OWN.getstate())
    return x * r.random() + OWN.random(), r


def seeded_inside_in_a_state(x):
    r = random.Random(8)
    a = r.random()
    r.setstate(OWN.getstate())
    return x * r.random() + OWN.random() * a, r


def of_one_made_inside(x):
    OWN.setstate(random.Random(4).getstate())
    return x * OWN.random()


def old_numpy(x):
    before = np.random.get_state()
    a = np.random.rand()
    np.random.set_state(before)
    return x * a + np.random.rand()


def old_numpy_for_a_while(x):
    before = np.random.get_state()
    np.random.seed(0)
    noise = torch.from_numpy(np.random.randn(4, 3))
    np.random.set_state(before)
    return x + noise, np.random.uniform()


def old_numpy_as_dictionaries(x):
    before = OLD.get_state(legacy=False)
    a = OLD.rand(3)
    OLD.set_state(before)
    return x + torch.from_numpy(a), OLD.get_state(legacy=False)


def new_numpy(x):
    before = NEW.bit_generator.state
    a = NEW.random()
    NEW.bit_generator.state = before
    return x * a + NEW.random() + NEW.integers(0, 5)


def new_numpy_through_its_bits(x):
    bits = NEW.bit_generator
    a = NEW.standard_normal(3)
    before = bits.state
    b = NEW.standard_normal(3)
    bits.state = before
    return x + torch.from_numpy(a - b), NEW.random(), bits.state


def new_numpy_read_first(x):
    before = NEW.bit_generator.state
    return x * NEW.random(), before, NEW.bit_generator.state


def for_a_while(seed):
    before = random.getstate(), np.random.get_state(), NEW.bit_generator.state
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        NEW.bit_generator.state = before[2]


def by_a_context_manager(x):
    for seed in range(2):
        with contextlib.contextmanager(for_a_while)(seed):
            x = x * random.random() + np.random.rand() * NEW.random()
    return x + random.random() + np.random.rand() + NEW.random()


def new_numpy_given_to_another(x):
    NEWER.bit_generator.state = NEW.bit_generator.state
    return x * NEWER.random() + NEW.random()


def new_numpy_made_inside(x):
    r = np.random.default_rng(3)
    before = r.bit_generator.state
    a = r.random()
    r.bit_generator.state = before
    return x * a + r.random(), r, before


def new_numpy_made_inside_in_a_state(x):
    r = np.random.default_rng(3)
    r.bit_generator.state = NEW.bit_generator.state
    return x * r.random() + NEW.random(), r


def two_on_the_same_bits(x):
    other = SHARED
    return x * NEW.random() + other.random(), NEW.random()


def without_a_seed(x):
    r, n, o = random.Random(), np.random.default_rng(), np.random.RandomState()
    r.seed(3)
    o.seed(4)
    n.bit_generator.state = NEW.bit_generator.state
    return x * r.random() + n.random() + o.rand()


SHARED = np.random.Generator(NEW.bit_generator)

ONE_GRAPH = [
    put_back, put_back_the_module, nobody_sees, given_to_another, in_the_middle, again_and_again, given_back, kept_outside,
    taken_from_outside, made_inside, made_inside_in_a_state, seeded_inside_in_a_state, of_one_made_inside, old_numpy, old_numpy_for_a_while,
    old_numpy_as_dictionaries, new_numpy, new_numpy_through_its_bits, new_numpy_read_first, by_a_context_manager, new_numpy_given_to_another, new_numpy_made_inside,
    new_numpy_made_inside_in_a_state, two_on_the_same_bits, without_a_seed,
]  # fmt: skip


def no_state(x):
    try:
        OWN.setstate((1, 2))
    except (ValueError, TypeError) as error:
        return x, str(error)
    return x


def written_before_it_is_given(x):
    state = OLD.get_state(legacy=False)
    state["pos"] = 3
    OLD.set_state(state)
    return x * OLD.rand()


def looked_into(x):
    version, words, gauss = OWN.getstate()
    return x * version + (words[0] % 7), gauss


OTHERS = [no_state, written_before_it_is_given, looked_into]


def _seed(number: int) -> None:
    KEPT.clear()
    for k, generator in enumerate((OWN, OTHER, random, OLD, np.random)):
        generator.seed(number + k)
    NEW.bit_generator.state = np.random.default_rng(number).bit_generator.state
    NEWER.bit_generator.state = np.random.default_rng(number + 1).bit_generator.state


def _shown(found: Any) -> Any:
    match found:
        case tuple() | list():
            return [type(found).__name__, *map(_shown, found)]
        case dict():
            return {key: _shown(value) for key, value in found.items()}
        case torch.Tensor() | np.ndarray():
            return str(found.dtype), found.tolist()
        case random.Random():
            return found.getstate()
        case np.random.Generator():
            return repr(found.bit_generator.state)
    return repr(found)


def _run(program: Callable[..., Any], number: int) -> Any:
    _seed(number)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    found = [_shown(program(x.clone())) for _ in range(3)]
    after = [_shown(g) for g in (OWN, OTHER, NEW, NEWER, random.getstate(), KEPT)]
    return found, after, _shown(np.random.get_state()), _shown(OLD.get_state())


@pytest.mark.parametrize("program", [*ONE_GRAPH, *OTHERS], ids=lambda f: f.__name__)
def test_as_in_eager(program: Callable[..., Any]) -> None:
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for number in range(3):
        assert _run(compiled, number) == _run(program, number)
    if program in ONE_GRAPH:
        assert not log.events("break")
        assert len(log.events("captured")) <= 4, "numbers of numpy are known in the first version"


def test_a_state_that_is_none_later() -> None:
    def program(x, state):
        OWN.setstate(state)
        return x * OWN.random()

    compiled = stoker.compile(program, backend="aot_eager")
    x = torch.ones(2)
    for seed in (1, 2):
        state = random.Random(seed).getstate()
        assert torch.equal(compiled(x, state), program(x, state))
    with pytest.raises(ValueError, match="state with version 1 passed to"):
        compiled(x, (1, (2,) * 3, None))


def test_what_grows_from_a_generator_made_inside() -> None:
    """A generator that is rebuilt behind a break knows what it was seeded by, and a seed below 0 is counted from the end."""

    def program(x: torch.Tensor) -> Any:
        spawned = np.random.default_rng(1).spawn(2)
        generator = torch.Generator().manual_seed(-1)
        return x * torch.rand(3, generator=generator), generator.initial_seed(), [s.random(2).tolist() for s in spawned]

    compiled = stoker.compile(program)
    for _ in range(3):
        found, expected = compiled(torch.ones(3)), program(torch.ones(3))
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]
