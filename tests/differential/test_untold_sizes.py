"""Functions of torch on rows chosen by data: in one graph, with eager's values and gradients, however many rows there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import log

Tensor = torch.Tensor
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "cdist": lambda r: (torch.cdist(r, r + 1), torch.cdist(r, torch.ones(4, 3), p=1), torch.cdist(r[None], r[None] * 2, 2.0)),
    "pdist": lambda r: (F.pdist(r), torch.pdist(r, 1.0)),
    "kron": lambda r: (torch.kron(r, torch.ones(2, 2)), torch.kron(torch.arange(2.0), r), torch.kron(r[:, 0], r[:, 1])),
    "max_pool1d": lambda r: (F.max_pool1d(r.t()[None], 2), F.max_pool1d(r.t(), 3, 1, 1), F.max_pool1d(r.t()[None], 2, return_indices=True)),
    "quantile": lambda r: (torch.quantile(r, 0.3), torch.quantile(r, torch.tensor([0.1, 0.5]), dim=0), r.nanquantile(0.4, 0)),
    "indices": lambda r: (torch.triu_indices(r.shape[0], r.shape[0], 1), torch.tril_indices(3, r.shape[0], dtype=torch.int32), r.sum()),
    "vander": lambda r: (torch.vander(r[:, 0].detach(), 3), torch.vander(r[:, 1].detach(), 4, increasing=True), r.sum()),
    "fft": lambda r: (torch.fft.fft(r, dim=0).abs(), torch.fft.fft(r + 1j, dim=0, norm="ortho").real, torch.fft.fft(r).imag),
    "ifft": lambda r: (torch.fft.ifft(r, dim=0).real, torch.fft.ifft(torch.fft.fft(r, dim=0) * 2, dim=0, norm="forward").real),
    "rfft": lambda r: (torch.fft.rfft(r, dim=0).abs(), torch.fft.rfft(r).real, torch.fft.rfft2(r, norm="backward").abs()),
    "irfft": lambda r: (torch.fft.irfft(torch.fft.rfft(r, dim=0), dim=0), torch.fft.irfft2(torch.fft.rfft2(r))),
    "squares": lambda r: ((r @ r.T).softmax(-1) @ r, (r @ r.T).triu(1), torch.diagonal(r @ r.T)),
    "fft2": lambda r: (torch.fft.fft2(r).real, torch.fft.ifft2(r + 0j).real, torch.fft.fft2(r.double()).abs()),
}  # fmt: skip
ROWS = [torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) for n in (9, 12, 7, 15)]


@pytest.mark.parametrize("grad", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str, grad: bool) -> None:
    def program(x: Tensor) -> Any:
        return PROGRAMS[name](x[x[:, 0].abs() > 0.1])

    def outcome(f: Callable[..., Any], x: Tensor) -> Any:
        leaf = x.clone().requires_grad_(grad)
        found = f(leaf)
        parts = found if isinstance(found, tuple) else (found,)
        followed = [p for p in parts if isinstance(p, Tensor) and p.requires_grad]
        return found, torch.autograd.grad(sum(p.square().sum() for p in followed), leaf) if grad else ()  # type: ignore[arg-type]

    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for x in ROWS:
        torch.testing.assert_close(outcome(compiled, x), outcome(program, x))
    assert not log.events("break")


def test_gradients_of_squares_are_compiled() -> None:
    """Their formulas ask how a square lies, to lay its gradient out alike; the graph must not run as it was captured for that."""

    def program(x: Tensor) -> Tensor:
        rows = x[x[:, 0].abs() > 0.1]
        return ((rows @ rows.T).softmax(-1) @ rows).sum()

    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for x in (*ROWS, torch.zeros(2, 3), torch.eye(3)):
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for run, leaf in zip((compiled, program), leaves):
            run(leaf).backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    assert not log.events("as captured")


def test_no_rows_at_all() -> None:
    """Where a size is one of those that functions treat by themselves, eager's answer comes all the same."""
    compiled = stoker.compile(lambda x: torch.kron(x[x > 0], torch.ones(2)) * 2, backend="aot_eager")
    for x in (torch.randn(5).abs(), torch.randn(7).abs(), -torch.ones(4)):
        torch.testing.assert_close(compiled(x), torch.kron(x[x > 0], torch.ones(2)) * 2)
