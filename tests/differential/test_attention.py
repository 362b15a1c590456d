"""`scaled_dot_product_attention` in all its forms with the default back end: eager's numbers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

attend = F.scaled_dot_product_attention
GENERATOR = torch.Generator().manual_seed(0)
LOWER = torch.ones(6, 6, dtype=torch.bool).tril()


def heads(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def bias(*shape: int) -> torch.Tensor:
    return heads(*shape)


FORMS: dict[str, Callable[..., Any]] = {
    "plain": lambda q, k, v: attend(q, k, v),
    "causal": lambda q, k, v: attend(q, k, v, is_causal=True),
    "scaled": lambda q, k, v: attend(q, k, v, scale=0.3),
    "causal scaled": lambda q, k, v: attend(q, k, v, is_causal=True, scale=2.0),
    "bool mask": lambda q, k, v: attend(q, k, v, attn_mask=LOWER),
    "bool mask per batch": lambda q, k, v: attend(q, k, v, attn_mask=LOWER.expand(2, 1, 6, 6)),
    "a row sees nothing": lambda q, k, v: attend(q, k, v, attn_mask=LOWER.tril(-1)),
    "float mask": lambda q, k, v: attend(q, k, v, attn_mask=torch.where(LOWER, 0.0, -1e9).to(q.dtype)),
    "mask of -inf": lambda q, k, v: attend(q, k, v, attn_mask=torch.where(LOWER, 0.0, float("-inf")).to(q.dtype)),
    "broadcast mask": lambda q, k, v: attend(q, k, v, attn_mask=torch.linspace(-1, 1, 6).to(q.dtype).view(1, 1, 1, 6)),
    "mask of one column": lambda q, k, v: attend(q, k, v, attn_mask=torch.linspace(-1, 1, 6).to(q.dtype).view(6, 1)),
    "transposed": lambda q, k, v: attend(*(t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))),
    "sliced": lambda q, k, v: attend(q[..., ::2], k[..., ::2], v[..., 1:6]),
    "expanded keys": lambda q, k, v: attend(q, k[:, :1].expand(-1, 4, -1, -1), v[:, :1].expand(-1, 4, -1, -1)),
    "fewer queries": lambda q, k, v: attend(q[:, :, :3], k, v),
    "fewer queries, causal": lambda q, k, v: attend(q[:, :, :3], k, v, is_causal=True),
    "grouped": lambda q, k, v: attend(q, k[:, :2], v[:, :2], enable_gqa=True),
    "grouped, causal": lambda q, k, v: attend(q, k[:, :2], v[:, :2], is_causal=True, enable_gqa=True),
    "three dimensions": lambda q, k, v: attend(q[0], k[0], v[0]),
    "two dimensions": lambda q, k, v: attend(q[0, 0], k[0, 0], v[0, 0]),
    "five dimensions": lambda q, k, v: attend(q[None], k[None], v[None]),
    "wider values": lambda q, k, v: attend(q, k, torch.cat([v, v], -1)),
    "dropout": lambda q, k, v: attend(q, k, v, dropout_p=0.4),
    "dropout, causal": lambda q, k, v: attend(q, k, v, dropout_p=0.4, is_causal=True),
    "dropout, masked": lambda q, k, v: attend(q, k, v, attn_mask=LOWER, dropout_p=0.4),
    "dropout of everything": lambda q, k, v: attend(q, k, v, dropout_p=1.0),
    "between operators": lambda q, k, v: (attend(q.relu(), k * 2, v + 1).transpose(1, 2).flatten(2) * 2).softmax(-1),
}


def observed(function: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[Any, ...]:
    given = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(5)
    out = function(*given)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    (out * weights).sum().backward()
    return out.detach(), *(x.grad for x in given), torch.rand(3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_forward_and_backward(name: str, dtype: torch.dtype) -> None:
    program, inputs = FORMS[name], [heads(2, 4, 6, 8, dtype=dtype) for _ in range(3)]
    stoker.reset()
    found, expected = observed(stoker.compile(program, fullgraph=True), inputs), observed(program, inputs)
    for mine, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, eager, equal_nan=True)
    assert found[0].stride() == expected[0].stride()
    torch.testing.assert_close(found[-1], expected[-1], rtol=0, atol=0, msg="the generator is elsewhere")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_inference(name: str, dynamic: bool) -> None:
    program, inputs = FORMS[name], [heads(2, 4, 6, 8) for _ in range(3)]
    stoker.reset()
    compiled = stoker.compile(program, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        torch.manual_seed(5)
        found = compiled(*inputs)
        torch.manual_seed(5)
        expected = program(*inputs)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.stride() == expected.stride()


def test_a_learned_mask_gets_a_gradient() -> None:
    program = lambda q, k, m: attend(q, k, k, attn_mask=m * 2)  # noqa: E731
    inputs = [heads(2, 4, 6, 8), heads(2, 4, 6, 8), heads(4, 6, 6)]
    found, expected = observed(stoker.compile(program), inputs), observed(program, inputs)
    for mine, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, eager)


@pytest.mark.parametrize("arguments", [{"dropout_p": 1.5}, {"attn_mask": LOWER[:5]}])
def test_what_eager_refuses(arguments: dict[str, Any]) -> None:
    program = lambda q: attend(q, q, q, **arguments)  # noqa: E731
    q = heads(2, 4, 6, 8)
    with pytest.raises((RuntimeError, ValueError)) as expected:
        program(q)
    with pytest.raises(expected.type):
        stoker.compile(program)(q)
