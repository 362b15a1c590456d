"""Iterators and generators from outside: what captured code takes of them is taken, and no more."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools

import pytest
import torch
from harness import BREAK, ONE, program

import stoker
from stoker import log


def given(*makers):
    return lambda: (torch.ones(3), *[make() for make in makers])


def squares(n):
    for i in range(n):
        received = yield i * i
        if received:
            yield received


def begun(n=5):
    made = squares(n)
    next(made)
    return made


@program("next and for over the iterator of a list", inputs=given(lambda: iter([1, 2, 3, 4, 5])), default=True)
def test_list(x, it):
    x = x * next(it)
    for value in it:
        x = x + value
        if value == 3:
            break
    return x


@program(
    "an iterator of tensors, with a default at its end", inputs=given(lambda: iter([torch.ones(3), torch.zeros(3)]))
)
def test_tensors(x, it):
    return x + next(it), next(it), next(it, None), next(it, "end")


@program(
    "iterators of tuples, ranges, text and bytes",
    inputs=given(
        lambda: iter((1, 2)), lambda: iter(range(1, 9, 3)), lambda: iter("aé"), lambda: iter(b"ab"), lambda: iter("")
    ),
)
def test_kinds(x, a, b, c, d, e):
    return x * next(a) + next(b), next(c), next(d), list(e), next(b)


@program("a reversed list and its end", inputs=given(lambda: reversed([1, 2, 3])))
def test_reversed(x, it):
    return x * next(it), list(it), list(it)


@program("zip and enumerate", inputs=given(lambda: zip([1, 2, 3], "abc"), lambda: enumerate((4.5, 5.5, 6.5), 7)))
def test_zip(x, pairs, counted):
    (a, b), (i, c) = next(pairs), next(counted)
    return x * a + c * i, b, [pair for pair in counted]


def grouped():
    it = iter(range(6))
    return zip(it, it)


@program("zip of one iterator twice", BREAK, inputs=given(grouped))
def test_grouped(x, pairs):
    a, b = next(pairs)
    return x * a + b


@program(
    "itertools.count and repeat",
    inputs=given(lambda: itertools.count(3), lambda: itertools.count(0, 2), lambda: itertools.repeat("r", 3)),
)
def test_count(x, a, b, c):
    return x * next(a) + next(a), next(b), next(b), next(c), [v for v in c]


@program(
    "other iterators of itertools",
    BREAK,
    inputs=given(
        lambda: itertools.cycle([1, 2]), lambda: itertools.chain([1], [2]), lambda: itertools.islice([1, 2, 3], 1, None),
        lambda: itertools.accumulate([1, 2]), lambda: itertools.permutations([1, 2]), lambda: iter(collections.deque([1])),
    ),
)  # fmt: skip
def test_itertools(x, a, b, c, d, e, f):
    return x * next(a), next(b), next(c), next(d), next(e), next(f)


@program(
    "map, filter and iterators of dictionaries and sets",
    inputs=given(
        lambda: map(abs, [-1]), lambda: filter(None, [0, 2]), lambda: iter({"a": 1}.items()), lambda: iter({3})
    ),
)
def test_mapped(x, a, b, c, d):
    return x * next(a), next(b), next(c), next(d)


@program("unpacking, `in`, any, sum, list and star", inputs=given(*[lambda: iter([5, 6, 7])] * 5))
def test_consumers(x, a, b, c, d, e):
    one, *rest = a
    return x * one, rest, 6 in b, any(v == 6 for v in c), sum(d), [*e]


@program(
    "the list changes while its iterator runs",
    BREAK,
    inputs=lambda: (lambda made: (torch.ones(3), made, iter(made)))([1, 2]),
)
def test_changed(x, items, it):
    y = x * next(it)
    items.append(9)
    return y, list(it)


@program(
    "an iterator and the list it goes over", inputs=lambda: (lambda made: (torch.ones(3), made, iter(made)))([1, 2])
)
def test_beside_its_list(x, items, it):
    return x * next(it) + items[1], len(items), items


class Held:
    def __init__(self):
        self.numbers, self.ids = iter([1, 2, 3]), itertools.count()


@program("iterators in attributes", inputs=lambda: (torch.ones(3), Held()))
def test_attributes(x, held):
    return x * next(held.numbers) + next(held.ids), next(held.ids)


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.schedule = itertools.count(1), iter([0.5, 0.25, 0.125, 0.1, 0.05, 0.01])

    def forward(self, x):
        return x * next(self.calls)


def test_a_counter_that_goes_on() -> None:
    """The number becomes symbolic: no code for each."""
    model, other = Counted(), Counted()
    compiled, x = stoker.compile(model, backend="eager", fullgraph=True), torch.ones(3)
    log.clear()
    for _ in range(12):
        assert torch.equal(compiled(x), other(x))
    assert len(log.events("captured")) <= 3
    assert next(model.calls) == next(other.calls) == 13


def test_a_schedule_that_goes_on() -> None:
    """Somewhere else at each call: it is advanced by CPython, not compiled for each place."""
    numbers, others = iter([float(i) for i in range(20)]), iter([float(i) for i in range(20)])

    def scaled(x, it):
        return x * 2 * next(it)

    compiled, x = stoker.compile(scaled, backend="eager"), torch.ones(3)
    log.clear()
    for _ in range(12):
        assert torch.equal(compiled(x, numbers), scaled(x, others))
    assert (
        len([event for event in log.events("captured") if event.subject == "scaled"]) <= 4
        and next(numbers) == next(others) == 12.0
    )


@program("a generator that has not begun, used up", inputs=given(lambda: squares(4)), default=True)
def test_pending(x, made):
    return [x * value for value in made], list(made)


@program(
    "a generator expression over tensors",
    inputs=lambda: (torch.ones(3), (t * 2 for t in [torch.ones(3), torch.zeros(3)])),
)
def test_expression(x, made):
    return torch.stack(list(made)) + x


@program("a generator that has not begun, left in the middle", BREAK, inputs=given(lambda: squares(4)))
def test_left(x, made):
    return x * next(made) + next(made)


@program("a generator that has not begun is closed", inputs=given(lambda: squares(4)))
def test_closed(x, made):
    made.close()
    return x * 2, list(made)


@program("a generator that has begun", BREAK, inputs=given(begun))
def test_begun(x, made):
    for value in made:
        x = x + value
        if value == 4:
            break
    return x


@program("send to, throw into and close a generator that has begun", BREAK, inputs=given(begun, begun, begun))
def test_protocol(x, a, b, c):
    y = x * a.send(3), next(a)
    try:
        b.throw(ValueError("thrown"))
    except ValueError as error:
        y = *y, str(error), list(b)
    c.close()
    return *y, list(c)


def closing_over(scale):
    return (value * scale for value in range(3))


@program("a generator with a cell", inputs=lambda: (torch.ones(3), closing_over(3)))
def test_cell(x, made):
    return x * sum(made)


@program("yield from an iterator from outside", inputs=given(lambda: iter([1, 2]), lambda: squares(3)))
def test_yield_from(x, it, made):
    def inner():
        yield from it
        yield from made

    return [x * value for value in inner()]


@contextlib.contextmanager
def noting(told):
    told.append("in")
    try:
        yield 5
    finally:
        told.append("out")


def entered_later():
    told = []
    return torch.ones(3), told, noting(told)


@program("a context manager made of a generator outside", inputs=entered_later)
def test_manager(x, told, manager):
    with manager as value:
        told.append("inside")
        x = x * value
    return x


LAYERS = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))


@program("parameters of a model, as an argument", inputs=lambda: (LAYERS.parameters(),))
def test_parameters(parameters):
    return torch.stack([parameter.norm() for parameter in parameters])


@program("lines of a file", BREAK, inputs=given(lambda: io.StringIO("1\n2\n3\n")))
def test_file(x, file):
    for line in file:
        x = x + int(line)
    return x


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


@program("an iterator of the user's class", ONE, inputs=given(lambda: Countdown(4)))
def test_own(x, it):
    x = x * next(it)
    for value in it:
        x = x + value
        if value == 1:
            break
    return x


def steps_of(kind, calls):
    """An iterator whose function leaves a trace, by what is around it."""

    def called(value, *others):
        calls.append(value)
        print("called with", value)
        return value + 1

    makers = {
        "map": lambda: map(called, [1, 2, 3, 4]),
        "map of two": lambda: map(called, [1, 2, 3, 4], (5, 6, 7)),
        "filter": lambda: filter(lambda value: called(value) % 2, [1, 2, 3, 4, 5]),
        "map of a map": lambda: map(called, map(called, range(4))),
        "map of an enumerate": lambda: map(lambda pair: called(pair[1]), enumerate([1, 2, 3, 4])),
        "map of a zip": lambda: map(lambda pair: called(pair[0]), zip([1, 2, 3, 4], [5, 6, 7, 8])),
        "zip of a map": lambda: zip(map(called, [1, 2, 3, 4]), [5, 6, 7, 8]),
        "enumerate of a map": lambda: enumerate(map(called, [1, 2, 3, 4])),
        "filter of a map": lambda: filter(None, map(called, [1, -1, 3, 4])),
    }
    return makers[kind]()


KINDS = [
    "map", "map of two", "filter", "map of a map", "map of an enumerate", "map of a zip", "zip of a map", "enumerate of a map",
    "filter of a map",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 2, 9])
def test_functions_of_iterators_are_called_once(kind, rounds):
    """What captured code takes of a map or a filter is not computed again behind the graph, given or kept over a break."""

    @stoker.disable
    def stop():
        pass

    def given(x, it):
        for _, value in zip(range(rounds), it):
            x = x + (value if isinstance(value, int) else value[0])
        return x

    def made(x, calls):
        it = steps_of(kind, calls)
        next(it)
        stop()
        for _ in range(rounds - 1):
            next(it, None)
        return x + 1, list(it)

    def outcome(run):
        calls: list = []
        printed = io.StringIO()
        it = steps_of(kind, calls)
        with contextlib.redirect_stdout(printed):
            results = run(given)(torch.ones(2), it), list(it), run(made)(torch.ones(2), calls)
        return str(results), calls, printed.getvalue()

    assert outcome(lambda f: stoker.compile(f, backend="eager")) == outcome(lambda f: f)


def test_functions_of_iterators_write_once():
    @stoker.disable
    def stop():
        pass

    def function(a):
        def grow(x):
            nonlocal a
            a += 1
            return x + 1

        m = map(grow, [1, 2, 3, 4, 5])
        a += next(m)
        stop()
        a += next(m)
        return a

    assert torch.equal(stoker.compile(function)(torch.ones(3)), function(torch.ones(3)))
