"""What a mask chooses has one size wherever the mask holds the same: programs that read and write by masks, with gradients, are one
compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

Tensor = torch.Tensor


def _assigned(x: Tensor, w: Tensor) -> Tensor:
    y = x * 1
    y[x > 0] = w.sum()
    return y


def _scaled(x: Tensor, w: Tensor) -> Tensor:
    y = x * 1
    y[x > 0] *= 2
    y[w < 0] += w.mean()
    return y


def _read_and_written(x: Tensor, w: Tensor) -> Tensor:
    mask, y = x > 0, x * w
    y[mask] = y[mask].sin() * w[mask]
    return y


def _other_places(x: Tensor, w: Tensor) -> Tensor:
    mask, y = x > 0, x * 1
    y[mask] = w[mask]
    y[~mask] = -w[~mask].exp()
    return y


def _scattered(x: Tensor, w: Tensor) -> Tensor:
    mask = x > 0
    return x.masked_scatter(mask, w[mask].tanh()) + x.masked_scatter(mask, w)


def _put(x: Tensor, w: Tensor) -> Tensor:
    return (x * 2).index_put((x > 0,), w[x > 0]).index_put((w > 0,), x[w > 0].cos(), accumulate=True)


def _rows(x: Tensor, w: Tensor) -> Tensor:
    rows, y = (x > 0).any(-1), x * 1
    y[rows, 1] = w[rows, 0]
    y[rows] = y[rows] + w[rows].softmax(-1)
    return y


def _several_ways(x: Tensor, w: Tensor) -> Any:
    mask = x > 0
    places = mask.nonzero(as_tuple=True)
    return x[mask] + torch.masked_select(w, mask) * x[places], w[mask.nonzero().unbind(1)] - x[mask]


def _flat(x: Tensor, w: Tensor) -> Tensor:
    mask = x > 0
    return x.reshape(-1)[mask.view(-1)] + w[mask]


def _computed_twice(x: Tensor, w: Tensor) -> Tensor:
    return x[(x.abs() * 2).sigmoid() > 0.7] * w[(x.abs() * 2).sigmoid() > 0.7]


def _kept_aside(x: Tensor, w: Tensor) -> Tensor:
    mask = torch.isfinite(x) & (w > 0)
    part = (x[mask] - x[mask].mean()) * w[mask]
    out = torch.zeros_like(x)
    out[mask] = part.relu()
    return out + w


def _written_between(x: Tensor, w: Tensor) -> Any:
    mask = x > 0
    first = x.detach()[mask] * w.detach()[mask]
    mask.logical_not_()
    second = x.detach()[mask] * w.detach()[mask]
    mask[0] = True
    return first.sum(), second.sum(), (x[mask] + w[mask]).sum()


def _written_through_a_view(x: Tensor, w: Tensor) -> Any:
    mask = x > 0
    first = x.detach()[mask] * w.detach()[mask]
    mask.view(-1)[:2] = False
    return first.sum(), x[mask] * w[mask]


def _from_an_argument(x: Tensor, w: Tensor) -> Any:
    first = (x.detach() > 0).nonzero()
    y = x * 1
    y.mul_(-1)
    return (y.detach() > 0).nonzero() * 2, first, y[y > 0] * w[y > 0]


def _drawn(x: Tensor, w: Tensor) -> Any:
    first = x[torch.rand_like(x) > 0.5]
    second = w[torch.rand_like(x) > 0.5]
    kept = torch.bernoulli(torch.full_like(x, 0.5)).bool()
    return first.sum() + second.sum(), x[kept] * w[kept]


def _same_number(x: Tensor, w: Tensor) -> Tensor:
    count = (x > 0).sum()
    return torch.ones(count.item()) * x.sum() + w.mean() * torch.ones(count.item())


def _one_group_each(x: Tensor, w: Tensor) -> Tensor:
    labels = (x.detach() * 2).long().abs().flatten()
    totals = torch.bincount(labels) + torch.bincount(labels).sqrt()
    repeated = torch.repeat_interleave(w.flatten(), labels) * torch.repeat_interleave(x.flatten(), labels)
    return repeated.sum() + totals.sum() + torch.unique(labels).sum() * (torch.unique(labels) + 1).sum()


PROGRAMS: list[Callable[[Tensor, Tensor], Any]] = [
    _assigned,
    _scaled,
    _read_and_written,
    _other_places,
    _scattered,
    _put,
    _rows,
    _several_ways,
    _flat,
    _computed_twice,
    _kept_aside,
    _written_between,
    _written_through_a_view,
    _from_an_argument,
    _drawn,
    _same_number,
    _one_group_each,
]


def _outcome(program: Callable[..., Any], seed: int, rows: int) -> list[Any]:
    torch.manual_seed(seed)
    x, w = (torch.randn(rows, 3, requires_grad=True) for _ in range(2))
    found = program(x, w)
    results = list(found) if isinstance(found, tuple) else [found]
    sum(r.cos().sum() for r in results if r.requires_grad).backward()  # type: ignore[union-attr]  # some do
    return [*(r.detach() for r in results), x.grad, w.grad]


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_compiled_graph(program: Callable[..., Any]) -> None:
    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for seed, rows in enumerate((4, 4, 5, 7)):
        torch.testing.assert_close(_outcome(compiled, seed, rows), _outcome(program, seed, rows))
    assert not stoker.events("as captured") and not stoker.events("backend")
    assert len(stoker.events("captured")) == 2


def test_a_branch_on_one_mask_is_decided() -> None:
    def program(x: Tensor) -> Tensor:
        mask = x > 0
        a, b = x[mask], x.exp()[x > 0]
        return a * b if a.shape == b.shape else a

    compiled = stoker.compile(program, fullgraph=True)
    x = torch.tensor([1.0, -2.0, 3.0])
    torch.testing.assert_close(compiled(x), program(x))


def test_running_statistics_are_written() -> None:
    norm = torch.nn.BatchNorm1d(3)

    def program(x: Tensor) -> Any:
        before = norm.running_mean.nonzero()  # type: ignore[union-attr, operator]  # it is there
        y = norm(x)
        after = norm.running_mean.nonzero()  # type: ignore[union-attr, operator]  # it is there
        return y, before.shape == after.shape

    compiled = stoker.compile(program)
    x = torch.randn(4, 3)
    found = compiled(x)
    norm.reset_running_stats()
    torch.testing.assert_close(found, program(x))
    assert found[1] is False


def test_what_is_chosen_twice_is_chosen_once() -> None:
    def program(x: Tensor) -> Any:
        return x[x > 0].sin() + x[x > 0].cos() * x[x > 0].sum(), x[x < 0], x[x < 0]

    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    x = torch.tensor([1.0, -2.0, 3.0])
    found = compiled(x)
    torch.testing.assert_close(found, program(x))
    assert found[1].data_ptr() != found[2].data_ptr()
    pieces = [e.data for e in stoker.events("compiled")]
    assert sum(line.count("gt.Scalar") for made in pieces for line in made.lines()) == 1
