"""Arguments whose names are words of Python's own: `x.uniform_(from=0)` can be called through a dictionary, and written nowhere."""

from __future__ import annotations

import pytest
import torch

import stoker


def uniform(x):
    return x.uniform_(**{"from": -3, "to": 2})


def uniform_from(x):
    return x.uniform_(**{"from": -3}) * 2


def uniform_of_the_class(x):
    return torch.Tensor.uniform_(x, **{"to": 5, "from": 4})


def integers(x):
    return x.random_(**{"from": -10, "to": 10})


def integers_by_position(x):
    return x.random_(-10, 10) + x


def integers_of_a_generator(x):
    return x.random_(**{"to": 10, "from": -3}, generator=torch.Generator().manual_seed(3))


def transposed(x):
    return x.t().random_(**{"from": 2, "to": 9}), x


def unknown(x):
    return x.normal_(**{"class": 1})


def twice(x):
    return x.uniform_(0.5, **{"from": 1})


@stoker.allow_in_graph
def unseen(x, **settings):
    return x + settings["class"]


def of_a_function(x):
    return unseen(x * 2, **{"class": 1})


def outcome(function):
    torch.manual_seed(5)
    x = torch.ones(3, 4)
    try:
        return function(x), x, torch.get_rng_state()
    except (TypeError, RuntimeError) as error:
        return type(error).__name__, str(error)


PROGRAMS = [
    uniform, uniform_from, uniform_of_the_class, integers, integers_by_position, integers_of_a_generator, transposed, unknown,
    twice, of_a_function,
]  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_as_in_eager(function, backend):
    have, expect = outcome(stoker.compile(function, backend=backend)), outcome(function)
    assert (
        have == expect if isinstance(expect[0], str) else not torch.testing.assert_close(have, expect, rtol=0, atol=0)
    )


def test_a_compiler_of_the_user_can_call_its_graph():
    compiled = stoker.compile(integers, backend=stoker.aot(lambda graph, inputs: graph.forward), fullgraph=True)
    torch.testing.assert_close(outcome(compiled), outcome(integers), rtol=0, atol=0)
