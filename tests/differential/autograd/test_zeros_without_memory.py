"""Zeros that autograd makes without memory, where a gradient is known to be zero: in graphs that differentiate twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import stoker

WEIGHT = torch.linspace(-1, 1, 12).reshape(1, 12).requires_grad_()
BIAS = torch.tensor([0.5], requires_grad=True)
LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a layer with one result": lambda x: F.l1_loss(F.linear(x.flatten(), WEIGHT, BIAS), torch.ones(1)),
    "rows of one": lambda x: F.l1_loss(F.linear(x.reshape(1, 12), WEIGHT, BIAS), torch.ones(1, 1)),
    "absolute": lambda x: (x.flatten() @ WEIGHT[0] - 3).abs(),
    "clamped": lambda x: (x.flatten() @ WEIGHT[0]).clamp(-1, 1) * x.sum(),
    "chosen": lambda x: torch.where(x.sum() > 0, (x * x).sum(), x.abs().sum()),
    "a maximum": lambda x: torch.maximum(x.sum(), BIAS[0]) * x.amax(),
    "smooth": lambda x: F.smooth_l1_loss(F.linear(x.flatten(), WEIGHT), torch.zeros(1)),
    "hinge": lambda x: F.relu(1 - F.linear(x.flatten(), WEIGHT, BIAS)).sum(),
}


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("name", LOSSES)
def test_twice_differentiated(name: str, backend: str) -> None:
    factor = torch.tensor(1.5, requires_grad=True)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        loss = LOSSES[name](x)
        (found,) = torch.autograd.grad(loss, x, grad_outputs=factor.expand_as(loss), create_graph=True)
        return found

    def observed(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor | None]:
        x = torch.linspace(-0.9, 1.3, 12).reshape(3, 4).requires_grad_()
        made = function(x)
        found = torch.autograd.grad((made * made).sum(), [x, factor, WEIGHT, BIAS], allow_unused=True)
        return [made.detach(), *(torch.zeros(()) if g is None or not g.any() else g for g in found)]

    torch.testing.assert_close(observed(stoker.compile(gradient, backend=backend)), observed(gradient))
