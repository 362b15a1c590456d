"""Mixtures of experts with top-k routing."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Compile, program


def feed_forward(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))


class Dense(nn.Module):
    """Every expert sees every token; weights of those not chosen are zero."""

    def __init__(self, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.gate, self.chosen = nn.Linear(16, experts, bias=False), chosen
        self.experts = nn.ModuleList([feed_forward() for _ in range(experts)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, index = self.gate(x).softmax(-1).topk(self.chosen, -1)
        gates = torch.zeros(*x.shape[:-1], len(self.experts)).scatter(-1, index, weight / weight.sum(-1, keepdim=True))
        return sum(gates[..., i, None] * expert(x) for i, expert in enumerate(self.experts))  # type: ignore[return-value]


class Sparse(Dense):
    """Each expert sees its own tokens, as many as there are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weight, index = self.gate(flat).softmax(-1).topk(self.chosen, -1)
        found = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(index == i)
            found = found.index_add(0, token, expert(flat[token]) * weight[token, place, None])
        return found.view_as(x)


@program("mixture of experts")
def all_experts(compile: Compile) -> Any:
    """Experts with dense gates, lengths that change."""
    model = compile(Dense())
    return [model(torch.randn(2, n, 16)) for n in (5, 8, 6)]


@program("mixture of experts")
def routed_tokens(compile: Compile) -> Any:
    """Experts with tokens gathered by `torch.where`, lengths that change."""
    model = compile(Sparse())
    with torch.no_grad():
        return [model(torch.randn(2, n, 16)) for n in (5, 8, 6)]


@program("mixture of experts")
def routed_training(compile: Compile) -> Any:
    """Experts with gathered tokens, gradients and a balancing loss."""
    model = Sparse()

    @compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        probabilities = model.gate(x).softmax(-1)
        share = F.one_hot(probabilities.argmax(-1), 4).float().mean((0, 1))
        return model(x).square().mean() + 0.01 * 4 * (share * probabilities.mean((0, 1))).sum()

    value = loss(torch.randn(2, 6, 16))
    value.backward()
    return value, [p.grad for p in model.parameters()]


@program("mixture of experts")
def capacity(compile: Compile) -> Any:
    """Experts with a fixed capacity: tokens dispatched by one-hot and cumsum."""
    gate, up, down = nn.Linear(16, 4), torch.randn(4, 16, 32), torch.randn(4, 32, 16)

    @compile
    def forward(x: torch.Tensor) -> torch.Tensor:
        probabilities, expert = gate(x).softmax(-1).max(-1)
        chosen = F.one_hot(expert, 4)
        place = (chosen.cumsum(0) - 1) * chosen
        kept = chosen * (place < 3)
        dispatch = kept.unsqueeze(-1) * F.one_hot(place.clamp(max=2), 3)
        inside = torch.einsum("nec,nd->ecd", dispatch.float(), x)
        outside = torch.einsum("ecd,edf->ecf", inside, up).relu()
        combined = torch.einsum("nec,ecd->nd", dispatch.float(), torch.einsum("ecf,efd->ecd", outside, down))
        return combined * probabilities.unsqueeze(-1)

    return [forward(torch.randn(n, 16)) for n in (8, 11, 9)]


@program("mixture of experts")
def sorted_tokens(compile: Compile) -> Any:
    """Experts on tokens sorted by expert, split by counts."""
    gate, experts = nn.Linear(16, 3), nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])

    @compile
    def forward(x: torch.Tensor) -> torch.Tensor:
        expert = gate(x).argmax(-1)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=3).tolist()
        parts = [layer(part) for layer, part in zip(experts, x[order].split(counts))]
        return torch.zeros_like(x).index_copy(0, order, torch.cat(parts))

    with torch.no_grad():
        return [forward(torch.randn(n, 16)) for n in (7, 9)]


@program("mixture of experts")
def soft_routing(compile: Compile) -> Any:
    """Soft mixture: slots are averages of tokens."""
    slots, experts = torch.randn(16, 4), nn.ModuleList([feed_forward() for _ in range(4)])

    @compile
    def forward(x: torch.Tensor) -> torch.Tensor:
        logits = x @ slots
        inside = logits.softmax(1).mT @ x
        outside = torch.stack([expert(inside[:, i]) for i, expert in enumerate(experts)], 1)
        return logits.softmax(-1) @ outside

    return [forward(torch.randn(2, n, 16)) for n in (5, 7, 9)]
