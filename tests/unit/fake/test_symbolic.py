"""Programs on symbolic sizes: shapes follow the symbols, and no symbol is fixed to a number."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stoker.fake import FakeMode, FakeTensor
from stoker.shape import ShapeEnv, evaluate
from stoker.shape.condition import Comparison, Relation
from stoker.shape.symnode import expr_of, symint


class BertBlock(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(50, width)
        self.positions = nn.Embedding(64, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, -1).transpose(1, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        positions = torch.arange(length, device=ids.device).unsqueeze(0).expand(batch, -1)
        x = self.words(ids) + self.positions(positions)
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        attended = F.dropout(F.softmax(scores + bias, dim=-1), 0.1, self.training) @ v
        joined = attended.transpose(1, 2).contiguous().view(batch, length, -1)
        x = self.first(x + self.out(joined))
        x = self.second(x + self.down(F.gelu(self.up(x))))
        return torch.tanh(x[:, 0])


class LlamaBlock(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm_weight = nn.Parameter(torch.ones(width))
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, shared * self.size, bias=False)
        self.v = nn.Linear(width, shared * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.down = nn.Linear(64, width, bias=False)
        self.register_buffer("frequency", 1.0 / 10000 ** (torch.arange(0, self.size, 2).float() / self.size))

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm_weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(batch, length, self.shared, self.size).transpose(1, 2)
        v = self.v(h).view(batch, length, self.shared, self.size).transpose(1, 2)
        angles = torch.outer(torch.arange(length, device=x.device).float(), self.frequency)
        both = torch.cat((angles, angles), -1)
        q, k = self.rotate(q, both.cos(), both.sin()), self.rotate(k, both.cos(), both.sin())
        groups = self.heads // self.shared
        k = k[:, :, None].expand(batch, self.shared, groups, length, self.size).reshape(batch, self.heads, length, -1)
        v = v[:, :, None].expand(batch, self.shared, groups, length, self.size).reshape(batch, self.heads, length, -1)
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, length, -1))
        h = self.norm(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x.flatten(0, 1) + causal.transpose(1, 2).reshape(-1, self.heads * self.size)


def fixes_a_symbol(env: ShapeEnv) -> list[str]:
    return [
        str(g)
        for g in env.guards
        if isinstance(g.condition, Comparison)
        and g.condition.relation is Relation.EQ
        and len(g.condition.expr.terms) == 1
    ]


def inputs(kind: str, batch: int, length: int) -> tuple[torch.Tensor, ...]:
    if kind == "bert":
        return torch.zeros(batch, length, dtype=torch.long), torch.ones(batch, length, dtype=torch.long)
    return (torch.zeros(batch, length, 32),)


@pytest.mark.parametrize("kind", ["bert", "llama"])
@pytest.mark.parametrize("backward", [False, True])
def test_block(kind: str, backward: bool) -> None:
    torch.manual_seed(0)
    model: Any = BertBlock() if kind == "bert" else LlamaBlock()
    env = ShapeEnv()
    mode = FakeMode(env)
    batch, length = symint(env, env.new_symbol(4)), symint(env, env.new_symbol(16))
    fakes = [mode.from_real(t, sizes=[batch, length, *t.shape[2:]]) for t in inputs(kind, 4, 16)]
    with mode:
        out = model(*fakes)
        if backward:
            out.sum().backward()
    assert isinstance(out, FakeTensor)
    assert not fixes_a_symbol(env), env.guards
    for sizes in ((2, 5), (7, 33)):
        values = dict(zip(env.symbols, sizes))
        expected = model(*inputs(kind, *sizes))
        assert [evaluate(expr_of(s), values) for s in out.shape] == list(expected.shape)
        assert [evaluate(expr_of(s), values) for s in out.stride()] == list(expected.stride())
    assert env.guards == []


CASES: dict[str, Any] = {
    "slice": lambda x: x[:, 1:-1],
    "last": lambda x: x[:, -1:],
    "cat": lambda x: torch.cat([x, x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "sum": lambda x: x.sum((0, 1)),
    "mean": lambda x: x.mean(1, keepdim=True) + x,
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.view(-1, 8),
    "reshape": lambda x: x.transpose(0, 1).reshape(x.size(1), -1),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "arange": lambda x: torch.arange(x.size(1)) * torch.arange(1, x.size(1) + 1),
    "zeros": lambda x: torch.zeros(x.size(0), x.size(1)),
    "new": lambda x: x.new_ones(x.shape[:2]),
    "expand": lambda x: x[:1].expand(x.size(0), -1, -1),
    "pad": lambda x: F.pad(x, (0, 0, 1, 2)),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "mask": lambda x: x.masked_fill(torch.ones(x.size(1), x.size(1)).tril()[None, :, :8].bool()[:, :, :1], 0.0),
    "tril": lambda x: torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril(),
    "index": lambda x: x[torch.arange(x.size(0)), 0],
    "gather": lambda x: x.gather(1, torch.zeros(x.size(0), 1, x.size(2), dtype=torch.long)),
    "norms": lambda x: F.layer_norm(x, (8,)) + F.rms_norm(x, (8,)),
    "einsum": lambda x: torch.einsum("bsd,btd->bst", x, x),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)).softmax(-1),
    "conv1d": lambda x: F.conv1d(x.transpose(1, 2), torch.zeros(4, 8, 3), padding=1),
    "max": lambda x: x.max(1).values,
    "topk": lambda x: x.topk(2).indices,
    "cumsum": lambda x: x.cumsum(1),
    "scale": lambda x: x / x.size(1) * x.size(0) ** 2,
    "roll": lambda x: x.roll(1, 1).flip(0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "double": lambda x: x[:, : x.size(1) - 1] + x[:, 1:],
    "interleave": lambda x: x.repeat_interleave(2, dim=1),
    "loss": lambda x: F.cross_entropy(x.flatten(0, 1), torch.zeros(x.size(0) * x.size(1), dtype=torch.long)),
}


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    env = ShapeEnv()
    mode = FakeMode(env)
    batch, length = symint(env, env.new_symbol(4)), symint(env, env.new_symbol(16))
    x = mode.from_real(torch.zeros(4, 16, 8), sizes=[batch, length, 8])
    with mode:
        out = CASES[name](x)
    assert not fixes_a_symbol(env), env.guards
    for sizes in ((4, 16), (5, 11), (3, 9)):
        values = dict(zip(env.symbols, sizes))
        expected = CASES[name](torch.zeros(*sizes, 8))
        assert [evaluate(expr_of(s), values) for s in out.shape] == list(expected.shape)
        assert [evaluate(expr_of(s), values) for s in out.stride()] == list(expected.stride())
