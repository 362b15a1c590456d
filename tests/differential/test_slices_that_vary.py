"""Slices and elements whose bounds vary from call to call: counted from the end, past it, with gradients and writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import stoker
from stoker import log

PROGRAMS: dict[str, Callable[..., torch.Tensor]] = {
    "from the end": lambda h, c: h[-c:] * 2,
    "of what was made": lambda h, c: (h * 2)[-c:] + 1,
    "up to the end": lambda h, c: (h * 2)[:-c].sin(),
    "in the middle": lambda h, c: (h * 2)[:, -c:-1].sin(),
    "beside its counterpart": lambda h, c: (h * 2)[-(c + 1) : -1] * h[:c],
    "before the start": lambda h, c: (h * 3)[c - 20 :].sum(0),
    "with a step": lambda h, c: (h * 3)[-c : c + 100 : 2].cos(),
    "past the end": lambda h, c: torch.cat([(h * 2)[c + 2 :], (h * 3)[-c - 3 :]]),
    "more than there are": lambda h, c: (h * 2)[-20:].sin(),
    "about as many as there are": lambda h, c: (h * 2)[:, -7:] + 1,
    "slice_scatter": lambda h, c: torch.slice_scatter(h * 2, h[:c], 0, -c),
    "slice_scatter by name": lambda h, c: torch.slice_scatter(h * 2, h[:c], dim=0, start=-c, end=None),
    "narrow": lambda h, c: (h + 1).narrow(0, -c, c) * torch.narrow(h, 1, c - 1, 2).sum(),
    "an element": lambda h, c: (h + 1)[-c] * 2 + (h * 2).select(1, -c),
    "select_scatter": lambda h, c: torch.select_scatter(h * 2, h[0] * 1, 0, -c),
    "two in a row": lambda h, c: h[-c:][:, -c:].exp(),
    "a border removed": lambda h, c: functional.pad(h.t() * 2, (1 - c, c)) + functional.pad(h, (-1, 2, 0, 0)),
    "borders removed": lambda h, c: functional.pad(h.t() * 2, (-1, 1 - c)),
    "of a view": lambda h, c: h.t()[-c:].reshape(-1)[-c:] * 3,
}


def _written(h: torch.Tensor, c: int) -> torch.Tensor:
    y = h * 2
    y[-c:] = 1
    y[:, -c] += 5
    y[-7:] *= 2
    return y + 1


PROGRAMS["written"] = _written


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = stoker.compile(program, dynamic=dynamic, fullgraph=True)
    log.clear()
    for size in (6, 8, 10, 7, 4):
        h = torch.randn(size, size, requires_grad=True)
        mine, theirs = compiled(h, size // 2), program(h, size // 2)
        torch.testing.assert_close(mine, theirs)
        weight = torch.randn_like(theirs)
        torch.testing.assert_close(torch.autograd.grad(mine, h, weight), torch.autograd.grad(theirs, h, weight))
    assert not log.events("backend")


@pytest.mark.parametrize("borders", [(1, 0), (-1, 1), (-1, 0), (1, -1), (0, -1), (2, -1)])
def test_no_more_is_removed_than_there_is(borders: tuple[int, int]) -> None:
    def program(x, n):
        return functional.pad(x * 2, (borders[0] * n, borders[1] * n))

    def outcome(function):
        try:
            return function(torch.ones(2, size), count).tolist()
        except RuntimeError as error:
            return str(error)

    compiled = stoker.compile(program)
    for size, count in [(3, 2), (4, 4), (5, 3), (3, 4), (2, 9), (6, 1)]:
        assert outcome(compiled) == outcome(program)


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_parts_of_nothing(count: int, backend: str) -> None:
    def program(x):
        nothing = torch.cat([x[:0] * n for n in range(count)])
        return nothing.sin() + 1, torch.cat([nothing.exp(), x]).cos(), torch.cat([x[3:], nothing * 2]).sum() + x.sum()

    x = torch.randn(3, requires_grad=True)
    mine, theirs = stoker.compile(program, backend=backend)(x), program(x)
    torch.testing.assert_close(mine, theirs)
    gradients = [torch.autograd.grad(sum(r.sum() for r in results), x) for results in (mine, theirs)]
    torch.testing.assert_close(*gradients)


ROLLED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x[3:].expand(2, *x[3:].shape).roll(1, 0),
    lambda x: x[:0].t().roll(1, 0),
    lambda x: x[:0].t().roll(1),
    lambda x: x[None, :0].expand(3, -1, -1).roll((1, 2), (0, 2)),
    lambda x: x[:, :0].expand(4, 3, 0).permute(1, 0, 2).roll(2, -1),
    lambda x: x[:, ::2][:0].roll(1, 1),
]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("program", ROLLED)
def test_nothing_lies_as_in_eager(program: Callable[[torch.Tensor], torch.Tensor], backend: str) -> None:
    x = torch.ones(3, 4)
    mine, theirs = stoker.compile(program, backend=backend)(x), program(x)
    assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())


@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
@pytest.mark.parametrize("rows", [0, 3])
def test_no_place_takes_any_source(name: str, rows: int) -> None:
    def program(x, source):
        y = x.sin()
        return getattr(y, name)(0, torch.zeros(0, dtype=torch.long), torch.where(source > 0, source, 1.0)) * 2

    x, source = torch.randn(rows), torch.randn(4, 3)
    torch.testing.assert_close(stoker.compile(program)(x, source), program(x, source))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_border_that_is_added_here_and_removed_there(turned: bool, grad: bool) -> None:
    """The last three columns, or as many as are missing before the first."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2) if turned else x
        return functional.pad(x, (3 - x.shape[-1], 0), value=7.0)

    log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for length in (9, 6, 4, 3, 5, 2, 1, 7):
        x = torch.randn(2, length, 4) if turned else torch.randn(2, 4, length)
        x.requires_grad_(grad)
        mine, theirs = compiled(x), program(x)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        assert mine.stride() == theirs.stride()
        if grad:
            weight = torch.randn_like(theirs)
            torch.testing.assert_close(torch.autograd.grad(mine, x, weight), torch.autograd.grad(theirs, x, weight))
        if length == 5:
            assert len(log.events("captured")) == 2
