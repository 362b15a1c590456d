"""Fake quantization in one graph, with its gradients; and Dirichlet's numbers, drawn as eager draws them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import stoker

SCALE, ZERO = torch.tensor([0.1, 0.3, 0.05]), torch.tensor([0, 3, 1], dtype=torch.int32)
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a tensor": lambda x: torch.fake_quantize_per_tensor_affine(x * 2, 0.1, 3, 0, 15) * x,
    "by tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, SCALE[0], ZERO[1], -8, 7).sin(),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x * 3, SCALE, ZERO, 1, 0, 255) + 1,
    "transposed": lambda x: torch.fake_quantize_per_tensor_affine(x.t(), 0.2, 0, -4, 4) * 2,
    "dirichlet": lambda x: torch.distributions.Dirichlet(x.abs() + 1).rsample() * x,
    "dirichlet, sampled": lambda x: torch.distributions.Dirichlet(x.abs() + 1).sample((2,)) + x,
    "dirichlet, transposed": lambda x: torch._sample_dirichlet(x.detach().abs().t() + 1) * x.t(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, backend: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = stoker.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)
    for rows in (4, 6):
        found = []
        for function in (compiled, program):
            torch.manual_seed(rows)
            x = torch.randn(rows, 3, requires_grad=True)
            result = function(x)
            gradient = torch.autograd.grad(result.sum(), x) if result.requires_grad else None
            found.append((result.detach(), result.stride(), gradient))
        torch.testing.assert_close(*found)


def test_a_layer() -> None:
    class Quantized(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = self.weight.detach().abs().amax() / 127
            zero = torch.zeros((), dtype=torch.int32)
            weight = torch.fake_quantize_per_tensor_affine(self.weight, scale, zero, -128, 127)
            return nn.functional.linear(x, weight, self.bias)

    torch.manual_seed(0)
    model, x = Quantized(5, 4), torch.randn(3, 5)
    mine, theirs = stoker.compile(model, fullgraph=True)(x), model(x)
    torch.testing.assert_close(mine, theirs)
    parameters = list(model.parameters())
    weight = torch.randn_like(theirs)
    torch.testing.assert_close(
        torch.autograd.grad(mine, parameters, weight), torch.autograd.grad(theirs, parameters, weight)
    )
