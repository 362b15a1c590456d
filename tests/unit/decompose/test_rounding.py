"""Operators that eager computes in several kernels, or in the type of their operands: half precision rounds where eager does, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stoker

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logsumexp": lambda x, t: torch.logsumexp(x, 1),
    "logsumexp of all": lambda x, t: torch.logsumexp(x, (0, 1), keepdim=True),
    "mse": lambda x, t: F.mse_loss(x, t),
    "mse of each": lambda x, t: F.mse_loss(x, t, reduction="none"),
    "soft margin": lambda x, t: F.soft_margin_loss(x, t.sign()),
    "soft margin of each": lambda x, t: F.soft_margin_loss(x, t.sign(), reduction="none"),
    "logits": lambda x, t: F.binary_cross_entropy_with_logits(x, t.sigmoid()),
    "logits of each": lambda x, t: F.binary_cross_entropy_with_logits(x, t.sigmoid(), reduction="none"),
    "logits with weights": lambda x, t: F.binary_cross_entropy_with_logits(
        x, t.sigmoid(), weight=t.abs(), pos_weight=t[0].abs(), reduction="sum"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounds_where_eager_does(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    compiled = stoker.compile(program, fullgraph=True)
    for rows in (3, 30, 300):
        x, target = torch.randn(rows, 64).to(dtype), torch.randn(rows, 64).to(dtype)
        mine, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, wanted = compiled(mine, target), program(eager, target)
        assert torch.equal(found, wanted)
        weights = torch.randn(wanted.shape).to(dtype)
        found.backward(weights)
        wanted.backward(weights)
        assert torch.equal(mine.grad, eager.grad)


def test_a_small_soft_margin_is_not_lost() -> None:
    """Beside 1 it is nothing."""
    x, target = torch.tensor([20.0, 40.0, -3.0]), torch.ones(3)
    program = lambda x, t: F.soft_margin_loss(x, t, reduction="none")  # noqa: E731
    torch.testing.assert_close(stoker.compile(program)(x, target), program(x, target), rtol=1e-6, atol=0.0)
