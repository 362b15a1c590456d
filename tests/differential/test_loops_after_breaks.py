"""A loop that breaks in one round goes on in one graph; one that breaks in each round is right, and soon no longer compiled."""

from __future__ import annotations

import collections
import zlib
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

X = torch.linspace(-1, 1, 8).repeat(3, 1)


def unknown() -> None:
    """A call that capture does not know."""
    zlib.adler32(b"key")


class Breaking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        unknown()
        return x * 2


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(8, 8), nn.ReLU(), Breaking(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid()]


SEQUENTIAL = nn.Sequential(*layers())
LIST = nn.ModuleList(layers())
DICT = nn.ModuleDict({f"l{n}": layer for n, layer in enumerate(layers())})
ORDERED = collections.OrderedDict((n, float(n)) for n in range(5))
NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0]


def nested_sequential(x):
    return nn.functional.relu(SEQUENTIAL(x)) + 1


def over_module_list(x):
    for layer in LIST:
        x = layer(x)
    return x


def twice(x):
    for layer in (*LIST, *LIST):
        x = layer(x)
    return x


def over_module_dict_items(x):
    for name, layer in DICT.items():
        x = layer(x) + len(name)
    return x


def over_module_dict_values(x):
    for layer in DICT.values():
        x = layer(x)
    return x


def over_keys(x):
    for name in DICT:
        x = DICT[name](x)
    return x


def over_enumerate(x):
    for n, layer in enumerate(LIST, start=3):
        x = layer(x) * n
    return x


def over_zip(x):
    for n, layer, name in zip(range(2, 20, 3), LIST, DICT):
        x = layer(x) * n + len(name)
    return x


def over_reversed(x):
    for layer in reversed(list(LIST)):
        x = layer(x)
    return x


def over_reversed_tuple(x):
    for layer in reversed(tuple(LIST)):
        x = layer(x)
    return x


def over_reversed_dict(x):
    for layer in reversed(dict(DICT).values()):
        x = layer(x)
    return x


def over_named_children(x):
    for layer in list(SEQUENTIAL.children()):
        x = layer(x)
    return x


def over_range(x):
    for n in range(6):
        x = x * 2
        if n == 2:
            unknown()
        x = x + n
    return x


def over_list(x):
    for n in NUMBERS:
        if n == 2:
            unknown()
        x = x * n
    return x


def over_tuple(x):
    for n in (1, 2, 3, 4):
        if n == 2:
            unknown()
        x = x * n
    return x


def over_made_list(x):
    parts = [x * n for n in range(5)]
    for n, part in enumerate(parts):
        if n == 1:
            unknown()
        x = x + part
    return x


def over_dict_items(x):
    for key, value in {"a": 1, "b": 2, "c": x, "d": 4}.items():
        if key == "b":
            unknown()
        x = x * value
    return x


def over_ordered(x):
    for key in ORDERED:
        if key == 1:
            unknown()
        x = x + ORDERED[key]
    return x


def over_ordered_items(x):
    for key, value in ORDERED.items():
        if key == 1:
            unknown()
        x = x + value
    return x


def over_set(x):
    for n in {2}:
        unknown()
        x = x * n
    return x


def over_text(x):
    for letter in "abcd":
        if letter == "b":
            unknown()
        x = x + ord(letter)
    return x


def over_map(x):
    for n, part in enumerate(map(lambda v: v * 2, [x, x + 1, x + 2, x + 3])):
        if n == 1:
            unknown()
        x = x + part
    return x


def over_filter(x):
    for n in filter(lambda v: v != 2, range(5)):
        if n == 1:
            unknown()
        x = x + n
    return x


def in_comprehension(x):
    return sum(part.sum() for part in [layer(x) for layer in LIST])


def inner_and_outer(x):
    for n in range(3):
        for k in (1, 2, 3):
            x = x * k
        if n == 1:
            unknown()
    return x


def with_else(x):
    for n in range(4):
        if n == 1:
            unknown()
        if n > 9:
            break
        x = x + n
    else:
        x = x * 10
    return x


def with_early_end(x):
    for n in range(100):
        if n == 1:
            unknown()
        x = x + n
        if n == 4:
            break
    return x, n


ONCE = [
    nested_sequential, twice, over_module_list, over_module_dict_items, over_module_dict_values, over_keys, over_enumerate, over_zip,
    over_reversed, over_reversed_tuple, over_reversed_dict, over_named_children, over_range, over_list, over_tuple, over_made_list, over_dict_items, over_ordered,
    over_ordered_items, over_set, over_text, over_map, over_filter, in_comprehension, inner_and_outer, with_else, with_early_end,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("program", ONCE, ids=lambda p: p.__name__)
def test_a_loop_breaks_once(program: Any, dynamic: bool | None) -> None:
    log.clear()
    compiled = stoker.compile(program, backend="eager", dynamic=dynamic)
    expected = program(X)
    torch.testing.assert_close(compiled(X), expected, rtol=0, atol=0)
    told = stoker.explain(compiled, X)
    assert {reason.construct for reason in told.breaks} == {"a call of `zlib.adler32`"}
    count = len(log.events("captured"))
    torch.testing.assert_close(compiled(X), expected, rtol=0, atol=0)
    assert len(log.events("captured")) == count
    assert not log.events("recompile") or program is twice  # a version for each of its two places


def test_the_default_back_end_agrees() -> None:
    compiled = stoker.compile(nn.Sequential(SEQUENTIAL, SEQUENTIAL))
    wanted, found = SEQUENTIAL(SEQUENTIAL(X)), compiled(X)
    torch.testing.assert_close(found, wanted)
    names = list(dict(SEQUENTIAL.named_parameters()))
    gradients = [torch.autograd.grad(result.sum(), list(SEQUENTIAL.parameters())) for result in (wanted, found)]
    assert names
    torch.testing.assert_close(*gradients)


def rounds(x, count):
    for n in range(count):
        x = x + n
        unknown()
        x = x * 2
    return x


def rounds_of_items(x, count):
    for key, value in {n: float(n) for n in range(count)}.items():
        x = x + key
        unknown()
        x = x * value
    return x


def rounds_of_zip(x, count):
    for n, layer in zip(range(count), [torch.sin, torch.cos] * count):
        x = layer(x) + n
        unknown()
    return x


@pytest.mark.parametrize("program", [rounds, rounds_of_items, rounds_of_zip], ids=lambda p: p.__name__)
def test_a_loop_that_breaks_in_each_round_settles(program: Any) -> None:
    log.clear()
    compiled = stoker.compile(program, backend="eager")
    torch.testing.assert_close(compiled(X, 20), program(X, 20), rtol=0, atol=0)
    assert not log.events("limit")
    assert len(log.events("captured")) < 14


def test_the_round_of_the_break_may_change() -> None:
    def program(x, where):
        for n in range(9):
            if n == where:
                unknown()
            x = x * 2 + n
        return x

    compiled = stoker.compile(program, backend="eager")
    for where in (2, 5, 2, 11, 0, 7, 3):
        torch.testing.assert_close(compiled(X, where), program(X, where), rtol=0, atol=0)


def grows_while_iterated(x, d):
    for key in d:
        x = x + key
        if key == 1:
            unknown()
        if key == 2:
            d[key + 100] = 1
    return x


def changes_values_while_iterated(x, d):
    for key, value in d.items():
        x = x + value
        if key == 1:
            unknown()
        d[3] = x.sum() * 0 + 50.0
    return x


def list_grows_while_iterated(x, d):
    numbers = list(d)
    for n in numbers:
        x = x + n
        if n == 1:
            unknown()
        if len(numbers) < 9:
            numbers.append(n + 10)
    return x, numbers


@pytest.mark.parametrize("program", [grows_while_iterated, changes_values_while_iterated, list_grows_while_iterated])
def test_what_is_iterated_may_change(program: Any) -> None:
    compiled = stoker.compile(program, backend="eager")
    for _ in range(2):
        ends = []
        for run in (program, compiled):
            given = {n: float(n) for n in range(5)}
            try:
                result = run(X, given)
            except RuntimeError as error:
                result = str(error)
            ends.append((result, list(given), [float(v) for v in given.values()]))
        torch.testing.assert_close(*ends, rtol=0, atol=0) if not isinstance(ends[0][0], str) else None
        assert str(ends[0]) == str(ends[1])
