"""Attention written by hand: found in its common forms, left alone where it means something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.passes.attention import fuse_attention

Q, K, V = (torch.randn(2, 4, n, 16, generator=torch.Generator().manual_seed(n)) for n in (8, 10, 10))
MASK = torch.zeros(2, 1, 8, 10).masked_fill(torch.arange(10) > 6, torch.finfo(torch.float32).min)


def scaled(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.25, dim=-1) @ v


def divided(q: Any, k: Any, v: Any) -> Any:
    weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) / 4.0, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, p=0.0, training=False), v).transpose(1, 2).contiguous()


def masked(q: Any, k: Any, v: Any) -> Any:
    return torch.matmul((torch.matmul(q, k.transpose(-1, -2)) * 0.25 + MASK).softmax(-1), v)


def masked_by_choice(q: Any, k: Any, v: Any) -> Any:
    mask = torch.where(torch.arange(10) > 6, -3.4e38, 0.0)[None, None].expand(2, 1, 8, 10)
    return torch.matmul((torch.matmul(q, k.transpose(-1, -2)) * 0.25 + mask).softmax(-1), v)


def written_query(q: Any, k: Any, v: Any) -> Any:
    mine = q * 1
    scores = mine @ k.transpose(-2, -1)
    mine.mul_(3)
    return torch.softmax(scores, dim=-1) @ v + mine.sum()


def assigned_value(q: Any, k: Any, v: Any) -> Any:
    mine = k * 1
    scores = q @ mine.transpose(-2, -1)
    mine[0] = 7
    return torch.softmax(scores, dim=-1) @ v + mine.sum()


def scaled_before(q: Any, k: Any, v: Any) -> Any:
    return ((q * 0.25) @ k.transpose(-2, -1)).softmax(dim=-1) @ v


def viewed(q: Any, k: Any, v: Any) -> Any:
    return scaled(q, k, v).view(8, -1)


def keeps_weights(q: Any, k: Any, v: Any) -> Any:
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    return weights @ v, weights


def other_dimension(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1), dim=1) @ v


def written_scores(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-2, -1)
    scores += MASK
    return torch.softmax(scores, dim=-1) @ v


def drops(q: Any, k: Any, v: Any) -> Any:
    return F.dropout(torch.softmax(q @ k.transpose(-2, -1), dim=-1), 0.5, True) @ v


FOUND = [scaled, divided, masked_by_choice, scaled_before, viewed]
LEFT = [masked, written_query, assigned_value, keeps_weights, other_dimension, written_scores, drops]


def captured(program: Callable[..., Any]) -> torch.fx.GraphModule:
    graphs: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    with torch.no_grad():
        stoker.compile(program, backend=keep)(Q, K, V)
    return graphs[0]


@pytest.mark.parametrize("program", FOUND, ids=lambda p: p.__name__)
def test_found(program: Callable[..., Any]) -> None:
    module = captured(program)
    fused = fuse_attention(module, 0)
    targets = [n.target for n in fused.graph.nodes]
    assert F.scaled_dot_product_attention in targets
    assert not any(str(getattr(t, "__name__", t)) == "softmax" for t in targets)
    assert F.scaled_dot_product_attention not in [n.target for n in module.graph.nodes]
    expected, result = program(Q, K, V), fused(Q, K, V)[0]
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("program", LEFT, ids=lambda p: p.__name__)
def test_left_alone(program: Callable[..., Any]) -> None:
    module = captured(program)
    assert fuse_attention(module, 0) is module
    if program is not drops:
        with torch.no_grad():
            torch.testing.assert_close(stoker.compile(program)(Q, K, V), program(Q, K, V))


def timm_block(x: Any, weight: Any, bias: Any, dropout: float = 0.0) -> Any:
    """Attention of an image model, as timm writes it."""
    batch, tokens, width = x.shape
    qkv = F.linear(x, weight, bias).reshape(batch, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    attention = ((q * (width // 2) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
    attention = F.dropout(attention, dropout, training=True)
    return (attention @ v).transpose(1, 2).reshape(batch, tokens, width)


def language_block(x: Any, weight: Any, bias: Any) -> Any:
    """Attention of a language model, as transformers writes it: heads in groups, a mask of numbers, weights in float32."""
    batch, tokens, width = x.shape
    q, k, v = F.linear(x, weight, bias).view(batch, tokens, 3, 2, width // 2).transpose(1, 3).unbind(2)
    k, v = (
        t[:, :1, None].expand(batch, 1, 2, tokens, width // 2).reshape(batch, 2, tokens, width // 2) for t in (k, v)
    )
    seen = torch.arange(tokens)[:, None] >= torch.arange(tokens)
    mask = torch.where(seen, 0.0, torch.finfo(x.dtype).min)[None, None]
    scores = torch.matmul(q, k.transpose(2, 3)) * (width // 2) ** -0.5 + mask
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = F.dropout(weights, p=0.0, training=True)
    return torch.matmul(weights, v).transpose(1, 2).contiguous().view(batch, tokens, width)


def trained(function: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    given = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(3)
    out = function(*given)
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    return [out.detach(), *(x.grad for x in given)]  # type: ignore[misc]


def calls(explanation: Any) -> set[str]:
    return {name for summary in explanation.compiled for name, *_ in summary.calls}


FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.parametrize("tokens", [40, 520])
@pytest.mark.parametrize("block", [timm_block, language_block])
def test_training(block: Callable[..., Any], tokens: int) -> None:
    """Long sequences are fused, with gradients; short ones are not."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, tokens, 16), torch.randn(48, 16) / 4, torch.randn(48)]
    stoker.reset()
    told = stoker.explain(block, inputs[0].requires_grad_(), *inputs[1:])
    assert any(name.startswith(FLASH) for name in calls(told)) == (tokens == 520)
    assert ("attention is one operator" in str(told)) == (tokens == 520)
    inputs[0] = inputs[0].detach()
    for mine, eager in zip(trained(stoker.compile(block), inputs), trained(block, inputs), strict=True):
        near = 1e-4 * max(1.0, float(eager.abs().max()))  # sums of hundreds of terms round by their largest
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=near)


def test_dropout_draws_what_eager_draws() -> None:
    inputs = [torch.randn(1, 520, 16), torch.randn(48, 16) / 4, torch.randn(48)]
    program = lambda *given: timm_block(*given, dropout=0.3)  # noqa: E731
    for mine, eager in zip(trained(stoker.compile(program), inputs), trained(program, inputs), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tokens", [40, 200])
def test_inference(tokens: int) -> None:
    q, k, v = (torch.randn(1, 2, tokens, 16) for _ in range(3))
    with torch.no_grad():
        stoker.reset()
        told = calls(stoker.explain(scaled, q, k, v))
        assert any(name.startswith(FLASH) for name in told) == (tokens == 200)
        torch.testing.assert_close(stoker.compile(scaled)(q, k, v), scaled(q, k, v))


@pytest.mark.parametrize("tokens", [8, 520])
def test_gradients_keep_their_gradients(tokens: int) -> None:
    """Fused or not: a second gradient is that of the program as captured."""
    q, k = (torch.randn(1, 1, tokens, 4) for _ in range(2))
    q.requires_grad_()
    (first,) = torch.autograd.grad(stoker.compile(scaled)(q, k, k).square().sum(), q, create_graph=True)
    (expected,) = torch.autograd.grad(scaled(q, k, k).square().sum(), q, create_graph=True)
    torch.testing.assert_close(first, expected, rtol=1e-4, atol=1e-4)
    seconds = [torch.autograd.grad(g.sum(), q)[0] for g in (first, expected)]
    torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-4)
