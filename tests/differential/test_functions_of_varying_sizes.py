"""Functions of torch whose C++ asks for sizes as plain numbers, or whose meta kernels do: two compilations serve all sizes, with eager's
values, strides and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

Tensor = torch.Tensor
WINDOW = torch.hann_window(8)


def _matrix(n: int) -> Tensor:
    return torch.randn(n, 3)


def _signals(n: int) -> Tensor:
    return torch.randn(2, n * 4)


def _image(n: int) -> Tensor:
    return torch.randn(1, 4, n, n + 2)


def _turned(x: Tensor) -> Tensor:
    return F.affine_grid(torch.eye(2, 3)[None], x.shape, align_corners=False)


PROGRAMS: dict[str, tuple[Callable[[int], Tensor], Callable[[Tensor], Any]]] = {
    "max_pool1d": (_signals, lambda x: (F.max_pool1d(x[None], 2), F.max_pool1d(x.t(), 2), F.max_pool1d(x, 3, 2, 1, ceil_mode=True))),
    "places of max_pool1d": (_signals, lambda x: F.max_pool1d(x, 2, return_indices=True)[0]),
    "stft": (_signals, lambda x: torch.view_as_real(torch.stft(x, 8, 2, window=WINDOW, return_complex=True))),
    "stft of a short window": (_signals, lambda x: torch.stft(x, 8, 4, 6, WINDOW[:6], normalized=True, pad_mode="constant", return_complex=True).real),
    "stft on both sides": (_signals, lambda x: torch.stft(x[0], 8, window=WINDOW, onesided=False, return_complex=True).abs()),
    "take_along_dim": (_matrix, lambda x: (torch.take_along_dim(x, x.argsort(0), 0), x.take_along_dim(x[:1].argsort(1), dim=-1))),
    "kron": (_matrix, lambda x: (torch.kron(x, torch.ones(2, 2)), torch.ones(3).kron(x[:, 0]))),
    "grid_sample": (_image, lambda x: F.grid_sample(x, _turned(x) * 0.7, align_corners=False)),
    "affine_grid": (_image, lambda x: _turned(x) * x.sum()),
    "turned by what is seen": (_image, lambda x: F.affine_grid(x.mean((2, 3))[:, [0, 1, 2, 3, 0, 1]].view(-1, 2, 3), x.shape, align_corners=True)),
    "turned volumes": (_image, lambda x: F.affine_grid(torch.eye(3, 4)[None] * x.sum(), (1, 1, 2, *x.shape[2:]), align_corners=False)),
    "largest of all": (_image, lambda x: (F.max_pool2d(x, x.shape[2:]), F.max_pool1d(x[0], x.shape[-1]), F.max_pool1d(F.relu(x[0] - 9), x.size(3)))),
    "mean of all": (_image, lambda x: (F.avg_pool2d(x, x.shape[2:]), F.avg_pool1d(x[0], x.shape[-1]), F.avg_pool2d(x, kernel_size=[x.size(2), x.size(3)]))),
    "other windows by size": (lambda n: torch.randn(1, 2, 4, 4), lambda x: (F.avg_pool2d(x, x.shape[2] // 2), F.max_pool2d(x, 2))),
    "pairs of rows": (_matrix, lambda x: (x[torch.triu_indices(len(x), len(x), 1)[0]] - x[torch.tril_indices(len(x), x.shape[0], -1)[1]]).norm(dim=1)),
    "corners": (_matrix, lambda x: tuple([x[0, 0] * f(len(x), len(x), o) for f in (torch.triu_indices, torch.tril_indices) for o in (-2, -1, 0, 1, 2, -99, 99)])),
    "roots of sizes": (_signals, lambda x: x[:, : math.isqrt(x.shape[1]) ** 2].reshape(2, math.isqrt(x.shape[1]), -1)),
    "linspace": (_matrix, lambda x: (x * torch.linspace(-1, 1, x.shape[0])[:, None], x[0, 0] * torch.linspace(3.5, 0.5, x.shape[0], dtype=torch.float64))),
    "numbers beside sizes": (_matrix, lambda x: (x[0, 0] * torch.tensor([x.shape[0], 2.5]), x[0, 0] * torch.tensor([[x.shape[0] * 2, 1], [0.5, x.shape[0] / 3]]))),
    "unfold": (_image, lambda x: F.unfold(x, 2, stride=2)),
    "bilinear": (_matrix, lambda x: F.bilinear(x, x[:, :2], torch.ones(4, 3, 2))),
    "renorm": (_matrix, lambda x: torch.renorm(x, 2, 0, 1.0)),
    "dist": (_matrix, lambda x: torch.dist(x, x.flip(0))),
    "multi_margin_loss": (_matrix, lambda x: F.multi_margin_loss(x, torch.zeros(x.shape[0], dtype=torch.long))),
    "mvlgamma": (_matrix, lambda x: torch.mvlgamma(x.abs() + 3, 2)),
    "ldexp": (_matrix, lambda x: torch.ldexp(x, torch.tensor(3))),
    "max_unpool2d": (_image, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
}  # fmt: skip


def _outcome(program: Callable[[Tensor], Any], x: Tensor, grad: bool) -> list[Any]:
    leaf = x.clone().requires_grad_(grad)
    made = program(leaf)
    parts = list(made) if isinstance(made, tuple) else [made]
    gradients = torch.autograd.grad(sum(part.sin().sum() for part in parts), leaf) if grad else ()  # type: ignore[arg-type]
    return [[part.detach() for part in parts], [part.stride() for part in parts], gradients]


@pytest.mark.parametrize("grad", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_compilations(name: str, grad: bool) -> None:
    make, program = PROGRAMS[name]
    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for n in (4, 6, 8, 10):
        x = make(n)
        torch.testing.assert_close(_outcome(compiled, x, grad), _outcome(program, x, grad))
    assert len(stoker.events("captured")) == (2 if make(4).shape != make(6).shape else 1) and not stoker.events(
        "as captured"
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_pools_that_eager_has_no_kernel_for(dtype: torch.dtype) -> None:
    found = []
    for run in (F.max_pool1d, stoker.compile(lambda x, size: F.max_pool1d(x, size))):
        with pytest.raises(NotImplementedError) as caught:
            run(torch.ones(1, 1, 4).to(dtype), 2)
        found.append(str(caught.value))
    assert found[0] == found[1]
