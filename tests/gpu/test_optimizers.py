"""Optimizer steps on a CUDA device, and numbers of the processor that kernels take by value. Runs where there is one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import optim

import stoker
from tests.stages.test_two_devices import NUMBERS, PROGRAMS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda p, **how: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p, **how: optim.Adam(p, 1e-2, **how),
    "AdamW": lambda p, **how: optim.AdamW(p, 1e-2, amsgrad=True, **how),
    "NAdam": lambda p, **how: optim.NAdam(p, 1e-2, **how),
    "RMSprop": lambda p, **how: optim.RMSprop(p, 1e-2, momentum=0.1, centered=True, **how),
    "Adagrad": lambda p, **how: optim.Adagrad(p, 1e-2),
}


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: str(n.dtype))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number(name: str, number: torch.Tensor) -> None:
    x = torch.linspace(-2, 2, 150, device="cuda").view(10, 15)
    program = PROGRAMS[name]
    stoker.reset()
    torch.testing.assert_close(stoker.compile(program, fullgraph=True)(x, number), program(x, number))


def test_a_float_that_changes() -> None:
    x = torch.randn(100, device="cuda")
    scaled = stoker.compile(lambda x, scale: x * scale + scale)
    for scale in (0.5, 1.25, -3.0, 1e30):
        torch.testing.assert_close(scaled(x, scale), x * scale + scale)


@pytest.mark.parametrize("how", [{}, {"capturable": True}], ids=["", "capturable"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer(name: str, dtype: torch.dtype, how: dict[str, Any]) -> None:
    """Many parameters of many shapes, one of them not aligned."""
    torch.manual_seed(0)
    sizes = [(300, 64), (64,), (64, 64), (1000, 333), (1,), (7, 3, 5), *[(129,)] * 20]
    ours = [torch.nn.Parameter(torch.randn(s, device="cuda", dtype=dtype)) for s in sizes]
    ours.append(torch.nn.Parameter(torch.randn(101, device="cuda", dtype=dtype)[1:]))
    eager = copy.deepcopy(ours)
    optimizers = [OPTIMIZERS[name](p, **how) for p in (ours, eager)]
    steps = [stoker.compile(optimizers[0].step), optimizers[1].step]
    for _ in range(5):
        for p, q in zip(ours, eager):
            p.grad = torch.randn_like(p)
            p.grad.view(-1)[::7] = 0  # nothing is left of a quotient but the epsilon
            q.grad = p.grad.clone()
        for step in steps:
            step()
    near = (
        {"rtol": 1e-4, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    )  # eager rounds each term to 1/32
    for p, q in zip(ours, eager):
        torch.testing.assert_close(p, q, **near)
        torch.testing.assert_close(optimizers[0].state[p], optimizers[1].state[q], **near)
