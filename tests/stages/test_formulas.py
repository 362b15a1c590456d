"""Operators that are a formula of others, and their gradients, through every stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

aten = torch.ops.aten
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.3, 0.7, -2.5, 30.0, -30.0, float("inf"), float("-inf"), float("nan")])


def values(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.cat([SPECIAL, torch.randn(52)]).view(8, 8)
    return [t.to(dtype) for t in (x, torch.randn(8, 8), torch.randn(8, 8))]


PROGRAMS = [
    lambda x, y, g: aten.mish_backward(g, x), lambda x, y, g: aten.glu_backward(g[:, :4], x, 1), lambda x, y, g: F.celu(x, 0.7),
    lambda x, y, g: aten.huber_loss_backward(g, x, y, 0, 0.5), lambda x, y, g: aten.huber_loss_backward(g[0, 0], x, y, 1, 2.0),
    lambda x, y, g: F.soft_margin_loss(y, g.sign()), lambda x, y, g: aten.soft_margin_loss_backward(g, y, g.sign(), 0),
    lambda x, y, g: F.binary_cross_entropy_with_logits(y, g.sigmoid(), reduction="none"),
    lambda x, y, g: F.binary_cross_entropy_with_logits(y, g.sigmoid(), g.abs(), pos_weight=y[0].abs()),
    lambda x, y, g: aten.logit_backward(g, x), lambda x, y, g: aten.logit_backward(g, x, 0.1), lambda x, y, g: torch.special.entr(x),
    lambda x, y, g: torch.xlogy(x, y), lambda x, y, g: torch.xlogy(y, x), lambda x, y, g: torch.xlogy(2, x), lambda x, y, g: torch.xlogy(x, 3.5),
    lambda x, y, g: torch.special.xlog1py(y, x), lambda x, y, g: torch.sinc(y), lambda x, y, g: torch.angle(x), lambda x, y, g: torch.sgn(x),
    lambda x, y, g: torch.addr(x, y[0], g[1]), lambda x, y, g: torch.addr(x, y[0], g[1], beta=0, alpha=0.5), lambda x, y, g: torch.logaddexp2(x, y),
    lambda x, y, g: torch.rot90(x, 1), lambda x, y, g: torch.rot90(x, 2), lambda x, y, g: torch.rot90(x, -1, (1, 0)), lambda x, y, g: torch.rot90(x, 4) * 2,
    lambda x, y, g: torch.linalg.cross(y[:, :3], g[:, 3:6]), lambda x, y, g: torch.linalg.cross(y[:3], g[3:6, :1], dim=0), lambda x, y, g: torch.trace(y),
    lambda x, y, g: torch.narrow_copy(x, 1, 2, 3), lambda x, y, g: aten._safe_softmax(torch.where(y[:, :1] > 0, y, float("-inf")), -1),
    lambda x, y, g: aten.copy(x.t(), y), lambda x, y, g: aten.copy(x, y[0].double()), lambda x, y, g: aten.zero(x) + 1,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_formulas(agree: Any, dtype: torch.dtype) -> None:
    agree(PROGRAMS, values(dtype), exact=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_gradient_of_group_norm(agree: Any, dtype: torch.dtype, affine: bool) -> None:
    torch.manual_seed(0)
    x, g = (torch.randn(2, 6, 5, 3).to(dtype) for _ in range(2))
    weight = torch.randn(6).to(dtype) if affine else None
    _, mean, scale = aten.native_group_norm(x, weight, weight, 2, 6, 15, 3, 1e-5)
    mask = [True, affine, affine]

    def program(g: Any, x: Any, mean: Any, scale: Any, *rest: Any) -> Any:
        made = aten.native_group_norm_backward(g, x, mean, scale, rest[0] if rest else None, 2, 6, 15, 3, mask)
        return [m for m in made if m is not None]

    given = [g, x, mean, scale, *([weight] if affine else [])]
    if dtype is torch.bfloat16:
        expected = program(*(t.double() for t in given))
        for mine, exact in zip(stoker.compile(program)(*given), expected, strict=True):
            torch.testing.assert_close(mine.double(), exact, rtol=2e-2, atol=4e-2)
    else:
        agree([program], given, exact=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_moments_of_half_precision_are_rounded_once(dtype: torch.dtype) -> None:
    """A running mean is the sum of two products; neither is rounded before the other is added."""
    torch.manual_seed(0)
    x = torch.randn(64, 16, 4).add(9).to(dtype)
    program = lambda x, m, v: (F.batch_norm(x, m, v, training=True, momentum=-1.2), m, v)  # noqa: E731
    moments = [torch.full((16,), v, dtype=dtype) for v in (8.3, 4.7)]
    exact = program(x.double(), *(m.double() for m in moments))
    found = stoker.compile(program)(x, *moments)
    for mine, wanted in zip(found[1:], exact[1:], strict=True):
        differing = (mine != wanted.to(dtype)).float().mean().item()
        assert differing < 0.1, "a product was rounded"
