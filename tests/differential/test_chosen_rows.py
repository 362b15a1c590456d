"""Operators on rows of which only data tells how many there are, none, one or more: one compiled graph, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

Tensor = torch.Tensor

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "einsum, a matrix": lambda y, w: torch.einsum("ij,kj->ik", y, w),
    "einsum, itself": lambda y, w: torch.einsum("ij,kj->ik", y, y * 2),
    "einsum, elements": lambda y, w: torch.einsum("ij,ij->i", y, y.sin()),
    "einsum, to a number": lambda y, w: torch.einsum("ij,ij->", y, y.cos()),
    "einsum, summed rows": lambda y, w: torch.einsum("ij,ik->jk", y, y),
    "einsum, ellipsis": lambda y, w: torch.einsum("...j,kj->...k", y, w),
    "einsum, three": lambda y, w: torch.einsum("ij,kj,kl->il", y, w, w),
    "einsum, batches": lambda y, w: torch.einsum("bij,bkj->bik", y.reshape(-1, 4, 1), y.reshape(-1, 2, 2).repeat(1, 2, 1)[..., :1]),
    "einsum, transposed": lambda y, w: torch.einsum("ij->ji", y) * 2,
    "reshape": lambda y, w: (y.reshape(-1, 2, 2) * 2, y.view(-1, 4, 1).sum(1), y.flatten() + 1, y.unflatten(1, (2, 2))),
    "reshape of a transpose": lambda y, w: (y.t().reshape(2, 2, -1) * 3, y.t().contiguous().view(4, -1, 1)),
    "products": lambda y, w: (y @ w.t(), F.linear(y, w), y.t() @ y, torch.outer(y[:, 0], w[:, 1])),
    "batched products": lambda y, w: torch.bmm(y.expand(2, -1, -1), w.t().expand(2, -1, -1)),
    "norms": lambda y, w: (F.layer_norm(y, (4,)), F.normalize(y, dim=1), y.norm(dim=1), y.softmax(1)),
    "moved": lambda y, w: (torch.cat([y, w]), y.repeat(2, 1), torch.stack([y, y * 2], 1), y.flip(0), y.roll(1, 1), F.pad(y, (1, 0))),
    "ordered": lambda y, w: (y.detach().cumsum(0), y.sort(1)[0], y.t().contiguous() * 2, y.diff(dim=1)),
    "split": lambda y, w: (*y.split(2, 1), *y.chunk(2, 1), *y.unbind(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str) -> None:
    def program(x: Tensor, w: Tensor) -> Any:
        return PROGRAMS[name](x[x[:, 0] > 0], w)

    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for seed, chosen in enumerate((3, 5, 1, 0, 2)):
        torch.manual_seed(seed)
        x, w = torch.randn(5, 4), torch.randn(3, 4)
        x[:, 0] = torch.where(torch.randperm(5) < chosen, 1.5, -1.5)
        found = []
        for run in (compiled, program):
            given = [t.clone().requires_grad_() for t in (x, w)]
            made = run(*given)
            results = list(made) if isinstance(made, tuple) else [made]
            gradients = torch.autograd.grad(sum(r.sin().sum() for r in results), given, allow_unused=True)  # type: ignore[arg-type]
            found.append([[r.detach() for r in results], [torch.zeros(()) if g is None else g for g in gradients]])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert not stoker.events("as captured") and not stoker.events("backend")
