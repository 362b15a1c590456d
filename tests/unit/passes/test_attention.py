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
    fused = fuse_attention(module)
    targets = [n.target for n in fused.graph.nodes]
    assert F.scaled_dot_product_attention in targets
    assert not any(str(getattr(t, "__name__", t)) == "softmax" for t in targets)
    assert F.scaled_dot_product_attention not in [n.target for n in module.graph.nodes]
    with torch.no_grad():
        expected, result = program(Q, K, V), stoker.compile(program)(Q, K, V)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("program", LEFT, ids=lambda p: p.__name__)
def test_left_alone(program: Callable[..., Any]) -> None:
    module = captured(program)
    assert fuse_attention(module) is module
    if program is not drops:
        with torch.no_grad():
            torch.testing.assert_close(stoker.compile(program)(Q, K, V), program(Q, K, V))


def test_gradients_keep_their_gradients() -> None:
    q = Q.clone().requires_grad_()
    (first,) = torch.autograd.grad(stoker.compile(scaled)(q, K, V).square().sum(), q, create_graph=True)
    (expected,) = torch.autograd.grad(scaled(q, K, V).square().sum(), q, create_graph=True)
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(*(torch.autograd.grad(g.sum(), q)[0] for g in (first, expected)))
