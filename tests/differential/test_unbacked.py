"""Sizes and numbers that only data tells: one graph where no branch needs them, checked promises, a break with words elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import GraphBreakError

XS = [
    torch.tensor([1.0, -2.0, 3.0, 0.0]),
    torch.tensor([1.0, 2.0, 3.0, 0.0, 5.0]),
    torch.tensor([-1.0, -1.0, -1.0]),
    torch.tensor([-1.0, 4.0, -1.0]),
    torch.tensor([4.0, -1.0, 6.0, 7.0, 8.0, 9.0]),
]


def _sorted(x: torch.Tensor) -> Any:
    chosen = x[x > 0]
    order = chosen.argsort(descending=True)
    return chosen[order], order, (chosen * 2)[order]


def _written(x: torch.Tensor) -> torch.Tensor:
    y, mask = x.clone(), x > 0
    y[mask] = y[mask] * 2
    return y


def _promised(x: torch.Tensor) -> torch.Tensor:
    count = x.abs().sum().long().item()
    torch._check(count >= 0)
    torch._check(count < 100, lambda: "too many")
    return torch.arange(count) * 2 + torch.ones(count)


def _prefix(x: torch.Tensor) -> torch.Tensor:
    at = x.abs().argmax().item()
    torch._check(at >= 0)
    torch._check(at <= x.shape[0])
    return x[:at] * 2


def _random(x: torch.Tensor) -> Any:
    chosen = x[x > 0]
    first = torch.rand(2)
    return chosen * torch.rand_like(chosen), first, torch.rand(3), torch.rand(()) * chosen.sum()


PROGRAMS: list[Callable[..., Any]] = [
    lambda x: x * x.sum().item() + x.max().item() * 2,
    lambda x: x * float(x.sum()) + float(x.long().sum()),
    lambda x: x * int(x.long().sum()) + x.argmax().item(),
    lambda x: (x.sum().item(), x.argmax().item() + 1, x * 2),
    lambda x: x.nonzero() * 2,
    lambda x: (x > 0).nonzero().squeeze(-1) + 1,
    lambda x: (x[x > 0] * 2).exp(),
    lambda x: x[x > 0].sum() + x[x < 0].mean(),
    lambda x: torch.masked_select(x, x > 0).sin() + 1,
    lambda x: torch.unique(x) + 1,
    lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    lambda x: torch.unique_consecutive(x, return_counts=True),
    lambda x: torch.repeat_interleave(x, x.abs().long()) * 2,
    lambda x: torch.bincount(x.abs().long(), minlength=3) + 1,
    lambda x: (torch.where(x > 0)[0] * 2, torch.argwhere(x > 0).T + 1),
    lambda x: (x[x > 0], x[x > 0].shape[0] + 1, x[x > 0].numel() * x),
    lambda x: torch.zeros_like(x).index_add_(0, (x > 0).nonzero().squeeze(1), x[x > 0] * 2),
    lambda x: torch.stack([x, x + 1])[:, x > 0].sum(0),
    lambda x: torch.cat([x[x > 0], x, x[x < 0]]).cumsum(0),
    lambda x: x[x > 0][:, None] * x,
    lambda x: x[x > 0][x[x > 0].argsort()[:0]] * 2,
    lambda x: (x[x > 0][:2] + 1, x[x > 0][1:], torch.bincount(x.abs().long())[1:2] + 1),
    _sorted,
    lambda x: (x[:3].tolist(), x * sum(x[1:3].long().tolist())),
    _written,
    _promised,
    _prefix,
    _random,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph(program: Callable[..., Any], backend: str) -> None:
    stoker.log.clear()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for x in XS:
        torch.manual_seed(3)
        found = compiled(x.clone())
        torch.manual_seed(3)
        torch.testing.assert_close(found, program(x.clone()), equal_nan=True)
    assert len(stoker.events("captured")) == 2
    assert not stoker.events("backend")


DIFFERENTIABLE: list[Callable[..., Any]] = [
    lambda x: (x[x > 0] * 2).exp().sum(),
    lambda x: x.tanh()[(x > 0).nonzero().squeeze(1)].pow(2).sum() * x.sum().item(),
    lambda x: torch.masked_select(x * 3, x > 0).sin().sum() + x.mean(),
    lambda x: torch.repeat_interleave(x.sin(), x.detach().abs().long()).cos().sum(),
]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("program", DIFFERENTIABLE)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for x in XS:
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(a).backward()
        program(b).backward()
        torch.testing.assert_close(a.grad, b.grad)


def test_a_promise_that_is_not_kept() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        chosen = x[x > 0]
        torch._check(chosen.shape[0] == 2, lambda: "two are wanted")
        return chosen + torch.ones(2)

    for backend in ("eager", "stoker"):
        compiled = stoker.compile(program, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(XS[0]), program(XS[0]))
        for x in (XS[1], XS[2]):
            with pytest.raises(RuntimeError, match="two are wanted"):
                compiled(x)
        torch.testing.assert_close(compiled(XS[0] * 2), program(XS[0] * 2))


def test_without_the_promise_it_breaks() -> None:
    program = lambda x: x[x > 0] + torch.ones(2)  # noqa: E731
    compiled = stoker.compile(program, backend="eager")
    torch.testing.assert_close(compiled(XS[0]), program(XS[0]))
    with pytest.raises(RuntimeError, match="must match the size"):
        compiled(XS[1])
    torch.testing.assert_close(compiled(XS[3]), program(XS[3]))


def test_a_branch_names_what_it_asks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        chosen = x[x > 0]
        if chosen.shape[0] > 2:
            return chosen * 2
        return x

    with pytest.raises(GraphBreakError, match=r"u\d+ >= 3") as found:
        stoker.compile(program, backend="eager", fullgraph=True)(XS[0])
    assert "torch._check" in str(found.value) and "test_unbacked.py" in str(found.value)
    compiled = stoker.compile(program)
    for x in XS:
        torch.testing.assert_close(compiled(x), program(x))


def test_a_branch_on_a_number() -> None:
    program = lambda x: x * 2 if x.sum().item() > 3 else x - x.sum().item()  # noqa: E731
    compiled = stoker.compile(program)
    for x in XS:
        torch.testing.assert_close(compiled(x), program(x))


def test_what_does_not_depend_on_data_is_compiled_whole() -> None:
    """A number that is only handed out leaves the rest of the program in one compiled graph."""
    stoker.log.clear()
    program = lambda x: ((x.sin() * 2 + 1).sum().item(), (x.cos() * 3 - 1) @ x)  # noqa: E731
    compiled = stoker.compile(program, fullgraph=True)
    torch.testing.assert_close(compiled(XS[0]), program(XS[0]))
    assert len(stoker.events("compiled")) == 1
