"""`while` loops, and loops through `enumerate`, `zip` and `reversed`, whose number of rounds changes: as test_rounds.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import log

LENGTHS = (5, 3, 8, 4, 6, 2, 7, 9)


def counting(x):
    t, h, found = 0, x[:, 0] * 0, []
    while t < x.shape[1]:
        h = torch.tanh(h + x[:, t])
        found.append(h)
        t += 1
    return torch.stack(found, 1), h, t


def counting_down(x):
    n, h = x.shape[1], x[:, 0] * 0
    while n:
        n -= 1
        h = torch.tanh(h + x[:, n])
    return h


def halving(x):
    n, h = x.shape[1], x[:, 0] * 0
    while n > 1:
        h = h * 2 + x[:, n - 1]
        n //= 2
    return h, n


def leaving_in_the_middle(x):
    t, h = 0, x[:, 0] * 0
    while True:
        h = h + x[:, t].sin()
        t += 1
        if t >= x.shape[1]:
            break
        h = h * 0.5
    return h * 2


def leaving_first(x):
    t, h = 0, x[:, 0] * 0
    while True:
        if t == x.shape[1]:
            return h, t
        h = h + x[:, t] * t
        t = t + 1


def with_an_else(x):
    t, h = 1, x[:, 0] * 2
    while t < x.shape[1]:
        if t == 7:
            break
        if t % 2:
            t += 1
            continue
        h = h * 1.5 + x[:, t]
        t += 1
    else:
        h = h - 1
    return h


def in_each_other(x):
    t, h = 0, x.new_zeros(4)
    while t < x.shape[1]:
        u = 0
        while u < t:
            h = h + (x[:, t] * x[:, u]).sum(0)
            u += 1
        for b in range(2):
            h = h + x[b, t] * b
        t += 1
    return h * 2


def in_a_for_loop(x):
    h = x.new_zeros(4)
    for b in range(3):
        t = 0
        while t < x.shape[1]:
            h = h * 0.5 + x[b, t]
            t += 2
    return h


def inner(x):
    t, h = x.shape[1] - 1, x[:, 0] * 0
    while t >= 0:
        h = h + x[:, t].exp()
        t -= 1
    return h


def calls_another(x):
    return inner(x * 2).relu() + inner(x + 1)


def within_try(x):
    t, h = 0, x[:, 0]
    try:
        while t < x.shape[1]:
            h = h + x[:, t] / (t + 1)
            t += 1
    finally:
        h = h * 2
    return h


def under_no_grad(x):
    t, h = 0, x[:, 0].detach()
    with torch.no_grad():
        while t < x.shape[1]:
            h = h + x[:, t]
            t += 1
    return h + x.mean()


def two_conditions(x):
    t, h, room = 0, x[:, 0] * 0, 6
    while t < x.shape[1] and room > 0:
        h = h + x[:, t]
        t, room = t + 1, room - 1
    return h, room


def windows(x):
    start, parts = 0, []
    while start < x.shape[1]:
        stop = min(start + 3, x.shape[1])
        parts.append(x[:, start:stop].sum(1))
        start = stop
    return torch.stack(parts, 1).amax(1)


def numbered_rows(x):
    h, found = x[:, 0] * 0, []
    for t, row in enumerate(x.transpose(0, 1)):
        h = torch.tanh(h + row * t)
        found.append(h)
    return torch.stack(found), t


def numbered_from_one(x):
    h = x[:, 0] * 0
    for t, row in enumerate(x.unbind(1), start=1):
        h = h / t + row
    return h


def numbered_range(x):
    h = x[:, 0] * 0
    for i, t in enumerate(range(1, x.shape[1])):
        h = h + x[:, t] * i
    return h


def pairs_of_rows(x):
    h = x[:, 0] * 0
    for a, b in zip(x.transpose(0, 1), (x * 2).transpose(0, 1), strict=True):
        h = torch.tanh(h + a * b)
    return h


def rows_and_numbers(x):
    h = x[:, 0] * 0
    for t, row in zip(range(x.shape[1]), x.unbind(1)):
        h = h + row * t
    return h


def rows_and_neighbours(x):
    h, rows = x[:, 0] * 0, x.transpose(0, 1)
    for before, after in zip(rows[:-1], rows[1:]):
        h = h + before * after
    return h


def numbered_pairs(x):
    h, y = x[:, 0] * 0, x.sin()
    for t, (a, b) in enumerate(zip(x.unbind(1), y.unbind(1))):
        h = h + a * b * t
    return h


def with_names(x):
    h = x[:, 0] * 0
    for name, row in zip("abc", x.unbind(1)):
        h = h + row * len(name)
    return h


def backwards(x):
    h = x[:, 0] * 0
    for t in reversed(range(x.shape[1])):
        h = torch.tanh(h + x[:, t])
    return h


def rows_backwards(x):
    h = x[:, 0] * 0
    for row in reversed(x.unbind(1)):
        h = torch.tanh(h + row)
    return h


def numbered_backwards(x):
    h = x[:, 0] * 0
    for i, t in enumerate(reversed(range(x.shape[1]))):
        h = h + x[:, t] * i
    return h


def unbound(x):
    h = x[:, 0] * 0
    for row in x.unbind(dim=1):
        h = torch.tanh(h + row)
    return h


def unbound_from_the_end(x):
    h = x[:, 0] * 0
    for row in torch.unbind(x, -2):
        h = torch.tanh(h + row)
    return h


def pieces(x):
    h = x[:, 0] * 0
    for part in x.split(2, 1):
        h = h + part.sum(1)
    for part in torch.split(x, split_size_or_sections=3, dim=-2):
        h = h - part.amax(1)
    return h


def numbered_pieces(x):
    h = x[:, 0] * 0
    for t, part in enumerate(x.transpose(0, 1).split(split_size=3)):
        h = h * 0.5 + part.amax(0) * t
    return h


PROGRAMS = [
    pieces, numbered_pieces,
    counting, counting_down, halving, leaving_in_the_middle, leaving_first, with_an_else, in_each_other, in_a_for_loop, calls_another,
    within_try, under_no_grad, two_conditions, windows, numbered_rows, numbered_from_one, numbered_range, pairs_of_rows, rows_and_numbers,
    rows_and_neighbours, numbered_pairs, with_names, backwards, rows_backwards, numbered_backwards, unbound, unbound_from_the_end,
]  # fmt: skip


def leaves(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    return [t for part in found for t in leaves(part)] if isinstance(found, (tuple, list)) else []


def results(function: Any, length: int, train: bool) -> Any:
    torch.manual_seed(length)
    x = torch.randn(3, length, 4, requires_grad=train)
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
    counts = Counter(e.data for e in log.events("captured") if e.data is not None)
    assert max(counts.values()) <= 4, [e.reason for e in log.events("recompile")]


@pytest.mark.parametrize(
    "program", [counting, numbered_rows, rows_and_numbers, backwards, unbound], ids=lambda f: f.__name__
)
def test_where_breaks_are_errors_each_number_of_rounds_is_a_graph(program):
    compiled = stoker.compile(program, backend="aot_eager", fullgraph=True)
    for length in LENGTHS[:4]:
        x = torch.randn(3, length, 4)
        torch.testing.assert_close(compiled(x), program(x))


def kept(x):
    rows, numbers = x.unbind(0), range(x.shape[0])
    return (
        rows[0] * len(rows),
        list(zip(numbers, rows))[-1],
        list(enumerate(numbers)),
        list(reversed(numbers)),
        sum(numbers),
    )


def to_another(x):
    for t, row in enumerate(list(zip(range(x.shape[0]), x.unbind(0)))):
        x = x + row[1] * t
    for t in sorted(range(x.shape[0]), key=lambda t: -t):
        x = x + t
    return x


def asks_a_size(x):
    t = 0
    while t < 4:
        if t < x.shape[0]:
            x = x + t
        t += 1
    return x


def reduced_by_halves(x):
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        x = torch.maximum(x[:half], x[-half:])
    return x


@pytest.mark.parametrize("program", [kept, to_another, asks_a_size, reduced_by_halves], ids=lambda f: f.__name__)
def test_what_goes_to_no_loop_of_this_kind_stays_in_one_graph(program):
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for length in LENGTHS[:4]:
        x = torch.randn(length, 4)
        torch.testing.assert_close(compiled(x), program(x))
    assert not log.events("break")


def test_the_reason_names_the_line():
    log.clear()
    compiled = stoker.compile(inner, backend="aot_eager")
    for length in (3, 5):
        compiled(torch.randn(2, length, 4))
    (event,) = [
        e for e in log.events("break") if "while" in e.reason and "s0" in e.reason and e.data.line == "while t >= 0:"
    ][:1]
    assert "changes from call to call" in event.reason


COMPREHENSIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "by number": lambda x: torch.stack([x[i].sin() for i in range(x.shape[0])]),
    "of rows": lambda x: torch.stack([row * 2 for row in x]),
    "counted": lambda x: torch.stack([row * i for i, row in enumerate(x)]),
    "in pairs": lambda x: torch.stack([a + b for a, b in zip(x, x.flip(0))]),
    "of pieces": lambda x: torch.cat([piece.cumsum(0) for piece in x.split(2)]),
    "some": lambda x: torch.stack([x[i] for i in range(x.shape[0]) if i % 2 == 0]),
    "by name": lambda x: {f"row {i}": x[i].sum() for i in range(x.shape[0])},
    "summed": lambda x: sum(x[i] * i for i in range(x.shape[0])),
    "largest": lambda x: x * max(i * 2 for i in range(x.shape[0])),
    "any": lambda x: x * 2 if any(i > 7 for i in range(x.shape[0])) else x,
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", COMPREHENSIONS)
def test_comprehensions(name: str, grad: bool) -> None:
    program = COMPREHENSIONS[name]
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for length in (4, 5, 6, 7, 8, 3, 9, 10, 11, 12, 13):
        x = torch.randn(length, 3, requires_grad=grad)
        torch.testing.assert_close(compiled(x), program(x))
    assert not log.events("limit")
    late = len(log.events("captured"))
    for length in (14, 15, 16):
        compiled(torch.randn(length, 3, requires_grad=grad))
    assert len(log.events("captured")) == late
