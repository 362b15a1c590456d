"""Indices, and what is put at them: eager's errors about sizes, types and places, whatever is empty or has no dimensions."""

from __future__ import annotations

import itertools

import pytest
import torch

import stoker

OPERATORS = {
    "scatter": lambda x, i, s: x.scatter(0, i, s),
    "scatter_": lambda x, i, s: x.scatter_(0, i, s),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s),
    "scatter_reduce": lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    "gather": lambda x, i, s: x.gather(0, i) + 0,
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_copy": lambda x, i, s: x.index_copy(0, i, s),
    "index_fill": lambda x, i, s: x.index_fill(0, i, s),
    "index_put": lambda x, i, s: x.index_put((i,), s),
    "accumulate": lambda x, i, s: x.index_put((i,), s, accumulate=True),
    "setitem": lambda x, i, s: x.__setitem__(i, s) or x,
    "columns": lambda x, i, s: x[None].repeat(2, 1).index_put((torch.tensor([0]), i), s),
    "index_select": lambda x, i, s: x.index_select(0, i) + 0,
    "take": lambda x, i, s: x.take(i) + 0,
}
SIZES = ((), (1,), (4,), (3,), (0,))


def outcome(f, *args):
    try:
        return f(*(a.clone() for a in args))
    except (RuntimeError, IndexError) as error:
        return type(error)


def assert_same(f, compiled, *args):
    expected, found = outcome(f, *args), outcome(compiled, *args)
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor), found
        assert found.shape == expected.shape and found.dtype is expected.dtype
        torch.testing.assert_close(found, expected)
    else:
        assert found is expected, [tuple(a.shape) for a in args]


@pytest.mark.parametrize("name", OPERATORS)
def test_sizes(name):
    """Whatever eager refuses is foretold, so that no kernel has to: these graphs do not raise."""
    f = OPERATORS[name]
    for x, i, s in itertools.product(SIZES[:-1], SIZES, SIZES):
        stoker.reset()
        args = (
            torch.arange(4.0)[: x[0]].clone() if x else torch.tensor(5.0),
            torch.zeros(i, dtype=torch.long),
            torch.full(s, 7.0),
        )
        assert_same(f, stoker.compile(f, backend=never_raising), *args)


def never_raising(module, inputs):
    """A back end whose kernels check nothing."""

    def call(*args):
        try:
            return module.forward(*args)
        except (RuntimeError, IndexError) as error:
            raise AssertionError(f"not foretold: {error}") from error

    return call


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.float32, torch.bool], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_types_of_indices(name, dtype):
    f = OPERATORS[name]
    args = torch.arange(4.0), torch.tensor([1, 0, 0, 1]).to(dtype), torch.full((4,), 7.0)
    assert_same(f, stoker.compile(f, backend="aot_eager"), *args)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_types_of_values(name, dtype):
    f = OPERATORS[name]
    args = torch.arange(4.0), torch.tensor([1, 0, 0, 1]), torch.full((4,), 7.0).to(dtype)
    assert_same(f, stoker.compile(f, backend="aot_eager"), *args)


@pytest.mark.parametrize("sizes", [(0, 2), (2, 0), (0, 2, 3)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_places_of_no_elements(sizes, dynamic):
    """Some kernels of eager's check places though nothing is read there, others do not."""
    for dim in range(len(sizes)):
        before = (slice(None),) * dim
        values = torch.zeros([2 if d == dim else size for d, size in enumerate(sizes)])
        places = torch.full(values.shape, 3)
        programs = [
            (lambda x, i, d=dim: x.index_select(d, i) + 0, torch.tensor([0, 3])),
            (lambda x, i, d=dim: x.index_fill(d, i, 1) + 0, torch.tensor([0, 3])),
            (lambda x, i, d=dim, v=values: x.index_copy(d, i, v) + 0, torch.tensor([0, 3])),
            (lambda x, i, d=dim, v=values: x.index_add(d, i, v) + 0, torch.tensor([0, 3])),
            (lambda x, i, b=before: x[(*b, i)] + 0, torch.tensor([0, 3])),
            (lambda x, i, b=before: x.__setitem__((*b, i), 1) or x, torch.tensor([0, 3])),
            (lambda x, i, d=dim: x.gather(d, i) + 0, places),
            (lambda x, i, d=dim: x.scatter(d, i, 1) + 0, places),
            (lambda x, i: torch.nn.functional.embedding(i, x.reshape(x.shape[0], -1)) + 0, torch.tensor([0, 9])),
        ]
        for program, index in programs:
            stoker.reset()
            assert_same(program, stoker.compile(program, dynamic=dynamic), torch.zeros(sizes), index)


def chosen(x, mask, i):
    return x[mask][i] + 1


def set_among_chosen(x, mask, i):
    z = x[mask] * 2
    z[i] = 7.0
    return z


def added_to_chosen(x, mask, i):
    return x[mask].clone().index_add_(0, i, torch.ones(i.shape[0]))


def rows_of_chosen(x, mask, i):
    rows = x[:, None].expand(5, 3)[mask]
    return rows.gather(0, i[:, None].expand(i.shape[0], 3)) + rows.index_select(0, i)


@pytest.mark.parametrize(
    "program", [chosen, set_among_chosen, added_to_chosen, rows_of_chosen], ids=lambda p: p.__name__
)
def test_places_among_none(program):
    """How many elements there are to choose from, data tells: there may be none, and then no memory to look at."""
    compiled = stoker.compile(program)
    some, none = torch.tensor([True, False, True, True, False]), torch.zeros(5, dtype=torch.bool)
    for mask, index in [(some, [0, 1]), (none, [0, 1]), (none, []), (some, [2, 9]), (some, [1, 1])]:
        assert_same(program, compiled, torch.randn(5), mask, torch.tensor(index, dtype=torch.long))


READ_IN_PART = {
    "an element": lambda x, i: x[i][0] + 1,
    "a slice": lambda x, i: x[i][:1].sum(),
    "a row that was selected": lambda x, i: x.index_select(0, i)[0] * 2,
    "a row of a table": lambda x, i: torch.nn.functional.embedding(i, x)[0] + 1,
    "a row that was gathered": lambda x, i: x.gather(0, i[:, None].expand(2, 3))[0] + 1,
    "an element that was taken": lambda x, i: x.take(i)[0] + 1,
    "a piece": lambda x, i: (x[i] * 2).split(1)[0] + 1,
    "a diagonal": lambda x, i: x[i].diagonal()[:1] + 1,
    "windows": lambda x, i: x[i].unfold(0, 1, 5) + 1,
    "joined with others": lambda x, i: torch.cat([x[i][:1], x]) + 1,
    "places among places": lambda x, i: x[i][torch.tensor([0])] + 1,
    "where it is positive": lambda x, i: torch.where(x[i] > 0, x[i], 0)[0],
    "what was put": lambda x, i: x.index_put((i,), torch.ones(()))[0] + 1,
    "overwritten": lambda x, i: x[i].copy_(x[:2]) + 1,
    "computed, then overwritten": lambda x, i: (x[i] * 2).copy_(x[:2]) + 1,
    "its sizes": lambda x, i: torch.zeros_like(x[i] * 3) + 1,
    "its sizes, transposed": lambda x, i: torch.full_like(x[i].t() + 1, 2.0),
    "filled": lambda x, i: (x[i] * 2 + 1).view(-1).fill_(3) + 1,
    "drawn": lambda x, i: x[i].uniform_() * 0 + 1,
    "nothing": lambda x, i: (x[i] * 2, x + 1)[1],
    "a quotient": lambda x, i: (x.long()[:2, :2] // i)[:1, :1] + 1,
    "everything": lambda x, i: x[i] * 2,
}


@pytest.mark.parametrize("name", READ_IN_PART)
def test_places_that_nobody_reads(name):
    """Eager looks at all places when it is asked for them, not at those whose elements are read later."""
    f = READ_IN_PART[name]
    compiled = stoker.compile(f)
    for index in ([0, 1], [1, 99], [3, 2], [99, 1]):
        assert_same(f, compiled, torch.arange(12.0).view(4, 3) + 1, torch.tensor(index))
