"""Operators that torch's own Python knows the shapes of, with sizes that change: compiled, without a break, forward and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import stoker
from stoker import log

CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "zero_": lambda x: torch.empty_like(x).zero_() + x,
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.5) + x,
    "log_normal_": lambda x: torch.empty_like(x).log_normal_() + x,
    "cauchy_": lambda x: torch.empty_like(x).cauchy_() + x,
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(x.shape[-1])),
    "qr": lambda x: torch.linalg.qr(x).R.abs(),
    "lu": lambda x: torch.linalg.lu(x)[1],
    "lu_factor": lambda x: torch.linalg.lu_factor(x)[0],
    "eigvals": lambda x: torch.linalg.eigvals(x).abs().sum(),
    "det": torch.linalg.det,
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x.triu() + 5 * torch.eye(x.shape[-1]), x, upper=True),
    "diag_embed": lambda x: torch.diag_embed(x, 1, 0, -1),
    "pinv": torch.linalg.pinv,
    "unfold": lambda x: F.unfold(x[None], 3, padding=1, stride=2),
    "fold": lambda x: F.fold(F.unfold(x, 3), x.shape[-2:], 3),
    "rfft2": lambda x: torch.fft.rfft2(x).abs(),
    "fft": lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    "fftn": lambda x: torch.fft.fftshift(torch.fft.fftn(x, dim=(1, 2))).abs(),
    "irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, n=x.shape[1], dim=1),
    "ifft2": lambda x: torch.fft.ifft2(x.transpose(0, 1)).abs(),
    "grid_sample": lambda x: F.grid_sample(x[None], x.new_zeros(1, 4, 4, 2), align_corners=False),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_change(name: str) -> None:
    function = CASES[name]
    compiled = stoker.compile(function, dynamic=True)
    stoker.log.clear()

    def run(f: Callable[..., Any], x: torch.Tensor) -> Any:
        torch.manual_seed(1)
        result = f(x)
        return result, torch.autograd.grad(result.sum(), x)[0]

    for n in (4, 5, 6):
        torch.manual_seed(n)
        x = torch.randn(3, n, n, requires_grad=True)
        torch.testing.assert_close(run(compiled, x), run(function, x), rtol=1e-3, atol=1e-4)
    assert not stoker.events("break"), stoker.events("break")


@pytest.mark.parametrize("name", ["fft", "fftn", "irfft", "ifft2", "rfft2"])
def test_fourier_transforms_are_compiled_once(name: str) -> None:
    compiled = stoker.compile(CASES[name], dynamic=True, fullgraph=True)
    stoker.log.clear()
    for n in (4, 5, 8, 9):
        compiled(torch.randn(n - 1, n, n + 1))
    assert len(stoker.events("captured")) == 1


def _halves(h, c):
    a, b = torch.split(h.relu(), c, dim=1)
    return (a * b).sum()


def _parts(h, c):
    return sum((part.exp() * n).sum() for n, part in enumerate(h.split(c)))


def _uneven(h, c):
    a, b = (h * 2).split([c, h.shape[0] - c])
    return a.sin().sum() + b.prod()


def _narrowed(h, c):
    return (h.narrow(0, 0, c).tanh() * h[-c:]).sum() + h[:, :c].cos().sum()


def _rolled(h, c):
    return (torch.cat([h[c:], h[:c]]).sigmoid() * h).sum()


def _padded(h, c):
    return F.pad(h * 2, (c, 1, 0, c)).sum()


def _cut_off(h, c):
    return (F.pad(h * 2, (1 - c, 0)) * F.pad(h, (-1, 1, -c, 2))[:1, :1]).sum()


@pytest.mark.parametrize("program", [_halves, _parts, _uneven, _narrowed, _rolled, _padded, _cut_off])
def test_sizes_that_nothing_kept_tells_are_kept_for_the_gradient(program):
    log.clear()
    compiled = stoker.compile(program, dynamic=True)
    for size in (6, 8, 10):
        h = torch.randn(size, size, requires_grad=True)
        (mine,) = torch.autograd.grad(compiled(h, size // 2), h)
        (theirs,) = torch.autograd.grad(program(h, size // 2), h)
        torch.testing.assert_close(mine, theirs)
    assert not log.events("backend")
