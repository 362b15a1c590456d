"""Loops over a number of rounds that changes: equal to eager at each number, and no code is compiled for each."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

LENGTHS = (5, 3, 8, 4, 6, 2, 7, 9)
CELL = nn.GRUCell(4, 4)


def collected(x):
    h = x.new_zeros(x.shape[0], 4)
    found = []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] + h * 0.5)
        found.append(h)
    return torch.stack(found, 1), h


def written_by_index(x):
    out = torch.zeros_like(x)
    state = torch.zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        state = x[:, t].sigmoid() * state + x[:, t]
        out[:, t] = state.type(x.dtype)
    return out.sum(1) * 2, state


def backwards(x):
    total = x.new_zeros(x.shape[0], 4)
    found = []
    for t in range(x.shape[1] - 1, -1, -1):
        total = x[:, t] + 0.9 * total
        found.insert(0, total)
    return torch.stack(found, 1)


def by_cells(x):
    h = torch.zeros(x.shape[0], 4)
    for t in range(x.size(1)):
        h = CELL(x[:, t], h)
    return h * 2


def with_a_step(x):
    total = x[:, 0]
    for t in range(1, x.shape[1], 2):
        total = total + x[:, t] * t
    return total


def leaves_early(x):
    total = x[:, 0] * 2
    for t in range(x.shape[1]):
        if t == 3:
            break
        if t % 2:
            continue
        total = total * 1.5 + x[:, t]
    else:
        total = total - 1
    return total


def inner(x):
    total = x[:, 0] * 0
    for t in range(x.shape[1]):
        total = total + x[:, t].exp()
    return total


def calls_another(x):
    y = x * 2
    return inner(y).relu() + inner(x + 1)


def in_each_other(x):
    total = x.new_zeros(4)
    for t in range(x.shape[1]):
        for b in range(2):
            total = total + x[b, t] * (b + 1)
    return total * 2


def doubly(x):
    total = x.new_zeros(4)
    for t in range(x.shape[1]):
        for u in range(t):
            total = total + (x[:, t] * x[:, u]).sum(0)
    return total


def within_try(x):
    total = x[:, 0]
    try:
        for t in range(x.shape[1]):
            total = total + x[:, t] / (t + 1)
    finally:
        total = total * 2
    return total


def under_no_grad(x):
    total = x[:, 0].detach()
    with torch.no_grad():
        for t in range(x.shape[1]):
            total = total + x[:, t]
    return total + x.mean()


def by_comprehension(x):
    return torch.stack([x[:, t].sin() * 2 for t in range(x.shape[1])], 1).cos()


def over_rows(x):
    total = x.new_zeros(x.shape[0], 4)
    found = []
    for row in x.transpose(0, 1):
        total = total * 0.5 + row.sin()
        found.append(total)
    return torch.stack(found, 1), total


def over_rows_of_what_is_made(x):
    total = x.new_zeros(4)
    for row in (x * 2).flatten(0, 1):
        total = torch.maximum(total, row)
    return total


def loop_variable_survives(x):
    y = x[:, 0]
    for t in range(x.shape[1]):
        y = y + x[:, t]
    return y, t


PROGRAMS = [
    collected,
    written_by_index,
    backwards,
    by_cells,
    with_a_step,
    leaves_early,
    calls_another,
    in_each_other,
    doubly,
    within_try,
    under_no_grad,
    by_comprehension,
    over_rows,
    over_rows_of_what_is_made,
    loop_variable_survives,
]


def most_compilations() -> int:
    return max(Counter(e.data for e in log.events("captured") if e.data is not None).values(), default=0)


def leaves(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, dict):
        return leaves(list(found.values()))
    return [t for part in found for t in leaves(part)] if isinstance(found, (tuple, list)) else []


def results(function: Any, length: int, train: bool, batch: int = 3) -> Any:
    torch.manual_seed(length)
    x = torch.randn(batch, length, 4, requires_grad=train)
    with torch.set_grad_enabled(train):
        found = function(x)
        if train:
            sum(part.square().sum() for part in leaves(found)).backward()
    return found, x.grad


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_no_code_for_each_number_of_rounds(program, train):
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for length in LENGTHS:
        torch.testing.assert_close(
            results(compiled, length, train), results(program, length, train), msg=lambda words: f"{length}: {words}"
        )
    assert most_compilations() <= 3


def unknown() -> None:
    """A call that capture does not know."""
    zlib.adler32(b"key")


def in_containers(x):
    pair, found = (x * 2, [x + 1]), x.sum(-1)
    unknown()
    return pair[0] + pair[1][0] + found[..., None]


def not_looked_at(x, y):
    z = x * 2
    unknown()
    z = z + 1
    unknown()
    return z + y


def numbers(x):
    n = x.shape[1] * 2
    unknown()
    return x.repeat(1, n)[:, :n]


def rows_by_data(x):
    chosen = x[x > 0]
    unknown()
    return chosen * 2


@pytest.mark.parametrize("program", [in_containers, not_looked_at, numbers, rows_by_data], ids=lambda f: f.__name__)
def test_what_varies_before_a_break_varies_behind_it(program):
    """The piece behind the break is compiled once for the size it was first met with, and once for all."""
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    count = program.__code__.co_argcount
    for length in LENGTHS:
        torch.manual_seed(length)
        given = [torch.randn(3, length) for _ in range(count)]
        torch.testing.assert_close(compiled(*given), program(*given))
    assert most_compilations() <= 2


def test_a_loop_that_always_has_the_same_rounds_stays_in_one_graph():
    def program(x, n):
        for t in range(n):
            x = x * 2 + t
        return x

    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for length in LENGTHS:
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x, 4), program(x, 4))
    assert not log.events("break")
    assert most_compilations() == 2


def test_where_breaks_are_errors_each_number_of_rounds_is_a_graph():
    compiled = stoker.compile(inner, backend="aot_eager", fullgraph=True)
    for length in LENGTHS[:4]:
        x = torch.randn(3, length, 4)
        torch.testing.assert_close(compiled(x), inner(x))


def rounds_by_data(x):
    total = x.sum() * 2
    for t in range(int((x > 0).sum())):
        total = total + t
    return total * 2


def test_a_number_of_rounds_that_only_data_tells():
    log.clear()
    compiled = stoker.compile(rounds_by_data, backend="aot_eager")
    for seed in range(6):
        torch.manual_seed(seed)
        x = torch.randn(9)
        torch.testing.assert_close(compiled(x), rounds_by_data(x))
    assert most_compilations() <= 2
    assert any("a loop over `range(" in event.reason for event in log.events("break"))


def test_the_reason_names_the_line():
    log.clear()
    compiled = stoker.compile(inner, backend="aot_eager")
    for length in (3, 5):
        compiled(torch.randn(2, length, 4))
    (event,) = [e for e in log.events("break") if "range(" in e.reason]
    assert event.data.line == "for t in range(x.shape[1]):"
    assert "changes from call to call" in event.reason


def reads_another(key, value):
    state = key[:, 0] * 0
    for t in range(key.shape[1]):
        state = state * 0.5 + value[:, t]
    return state


def test_the_body_takes_over_what_the_function_has_seen() -> None:
    """Before the loop only one of two tensors is looked at; that both were others at the first call is known."""
    log.clear()
    compiled = stoker.compile(reads_another, backend="eager")
    for length in LENGTHS:
        x = torch.randn(3, length, 4)
        torch.testing.assert_close(compiled(x, x + 1), reads_another(x, x + 1))
    again = [event.reason for event in log.events("recompile")]
    assert len(again) == 1, again


def of_a_slice(x):
    state = x.new_zeros(x.shape[0], 4, 11)[:, :, 1]
    for t in range(x.shape[1]):
        state = torch.maximum(state, x[:, t]) * 0.5 + state.tanh() * x[:, t]
    return state


def across(x):
    state = x.new_zeros(4, x.shape[0]).t()
    for t in range(x.shape[1]):
        state = torch.tanh(x[:, t] + state) - state.mean(0)
    return state


def by_matrices(x):
    state = x.new_ones(x.shape[0], 1).expand(-1, 4)
    for t in range(x.shape[1]):
        state = (state.softmax(-1) @ x[0, :1].t()) * x[:, t] + state.sum(0, keepdim=True)
    return state


def asks_for_one(x):
    state = x.new_zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        state = state * 0.5 + (x[:, t] if x.shape[0] == 1 else x[:, t].flip(0))
    return state


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", [of_a_slice, across, by_matrices, asks_for_one, written_by_index, by_cells])
def test_a_round_serves_batches_of_one(program, train, backend):
    log.clear()
    compiled = stoker.compile(program, backend=backend)
    for place, length in enumerate((*LENGTHS, 4, 7)):
        batch = 1 if place in (5, 8) else 2 + place
        expected, found = (results(function, length, train, batch) for function in (program, compiled))
        torch.testing.assert_close(found, expected, msg=lambda words: f"{batch}, {length}: {words}")
        for mine, theirs in zip(leaves(found[0]), leaves(expected[0]), strict=True):
            assert mine.is_contiguous() == theirs.is_contiguous()
            assert [s for s, n in zip(mine.stride(), mine.shape) if n > 1] == [
                s for s, n in zip(theirs.stride(), theirs.shape) if n > 1
            ]
    assert most_compilations() <= (4 if program is asks_for_one else 3)
