"""Floats and integers that are others at each call: symbolic from their second value, so that no third version is compiled."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stoker

X = torch.arange(1, 25).reshape(4, 6).float() / 10
CLASSES = torch.tensor([0, 1, 2, 3])
FLOATS = [0.1, 0.2, 0.3, 0.4, 0.6]

OF_A_FLOAT: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "dropout": lambda x, q: F.dropout(x, q, True),
    "dropout module": lambda x, q: nn.Dropout(q)(x),
    "layer_norm": lambda x, q: F.layer_norm(x, (6,), torch.full((6,), 2.0), torch.ones(6), eps=q),
    "layer_norm in half precision": lambda x, q: F.layer_norm(x.bfloat16(), (6,), eps=q),
    "rms_norm": lambda x, q: F.rms_norm(x, (6,), torch.full((6,), 2.0), eps=q),
    "group_norm": lambda x, q: F.group_norm(x[None], 2, torch.ones(4), torch.ones(4), eps=q),
    "batch_norm": lambda x, q: F.batch_norm(x, torch.zeros(6), torch.ones(6), torch.ones(6), eps=q),
    "temperature": lambda x, q: F.softmax(x / q, -1),
    "attention": lambda x, q: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], scale=q),
    "causal attention": lambda x, q: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True, scale=q),
    "leaky_relu": lambda x, q: F.leaky_relu(x - 1, q),
    "elu": lambda x, q: F.elu(x - 1, alpha=q),
    "softplus": lambda x, q: F.softplus(x, beta=q),
    "hardtanh": lambda x, q: F.hardtanh(x, -q, q),
    "threshold": lambda x, q: F.threshold(x, q, 0.0),
    "clamp": lambda x, q: x.clamp(q, q + 1),
    "addmm": lambda x, q: torch.addmm(x @ x.T, x, x.T, beta=q, alpha=1 - q),
    "power": lambda x, q: x**q,
    "norm": lambda x, q: torch.norm(x, p=q + 1),
    "full": lambda x, q: torch.full((3,), q) + torch.full_like(x[0, :3], q),
    "masked_fill": lambda x, q: x.masked_fill(x > 1, q) + torch.where(x > 1, x, q),
    "uniform_": lambda x, q: torch.empty(3).uniform_(-q, q),
    "normal_": lambda x, q: torch.empty(3).normal_(1.0, q),
    "bernoulli_": lambda x, q: torch.empty(30).bernoulli_(q),
    "label smoothing": lambda x, q: F.cross_entropy(x, CLASSES, label_smoothing=q),
    "label smoothing of some": lambda x, q: F.cross_entropy(x, CLASSES, ignore_index=2, reduction="sum", label_smoothing=q),
    "huber_loss": lambda x, q: F.huber_loss(x, x * 2, delta=q),
    "smooth_l1_loss": lambda x, q: F.smooth_l1_loss(x, x * 2, beta=q, reduction="sum"),
    "margin_ranking_loss": lambda x, q: F.margin_ranking_loss(x, x * 2, torch.ones_like(x), margin=q),
    "gumbel_softmax": lambda x, q: F.gumbel_softmax(x, tau=q),
    "a tensor of it": lambda x, q: x[:, :2] * torch.tensor([q, 1 - q]),
    "the smaller of two": lambda x, q: x * min(1.0, q * 3) + max(q, 0.25),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_A_FLOAT)
def test_a_float(name: str) -> None:
    assert_two_versions(OF_A_FLOAT[name], [(X, q) for q in FLOATS])


def test_steps_up_to_a_time() -> None:
    """A number is compared with what is computed of it: how the comparisons end is guarded."""

    def program(x: torch.Tensor, end: float) -> Any:
        time, step = 0.0, 0.25
        while time < end:
            step = min(step, end - time)
            x, time = x + step * x, time + step
        return x, step <= end, end == time

    assert_two_versions(program, [(X, 0.5 + q / 100) for q in FLOATS])


def test_momentum_of_running_statistics() -> None:
    def program(x: torch.Tensor, q: float) -> Any:
        mean, var = torch.zeros(6), torch.ones(6)
        return F.batch_norm(x, mean, var, training=True, momentum=q), mean, var

    assert_two_versions(program, [(X, q) for q in FLOATS])


def test_a_batch_of_nothing_is_not_remembered() -> None:
    """With a cumulative average, whose momentum varies with the number of batches."""
    found = []
    for call in (stoker.compile, lambda module: module):
        module = torch.nn.BatchNorm1d(2, momentum=None)
        run = call(module)
        for n in (3, 0, 4, 0, 5):
            run(torch.arange(2.0 * n).view(n, 2))
        found.append(list(module.buffers()))
    torch.testing.assert_close(*found)


def test_gradients() -> None:
    def program(x: torch.Tensor, q: float) -> torch.Tensor:
        return F.dropout(F.layer_norm(F.softmax(x / q, -1), (6,), eps=q), q, True).square().sum()

    compiled = stoker.compile(program, fullgraph=True)
    for q in FLOATS:
        found = []
        for call in (program, compiled):
            torch.manual_seed(0)
            x = X.clone().requires_grad_()
            call(x, q).backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0])


@dataclass
class Settings:
    rate: float
    steps: int


HELD: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "in a list": (lambda x, held: x * held[0] + held[1], lambda i: [i / 10, i]),
    "in a dictionary": (lambda x, held: x * held["a"]["b"], lambda i: {"a": {"b": i / 10}}),
    "in a tuple": (lambda x, held: x * held[1], lambda i: (1, i / 10)),
    "in a dataclass": (lambda x, held: x * held.rate + held.steps, lambda i: Settings(i / 10, i)),
    "decaying": (lambda x, i: x * (0.1 * 0.95**i), lambda i: i),
    "warming up": (lambda x, i: x * min(1.0, i / 5), lambda i: i),
    "cosine": (lambda x, i: x * (0.5 * (1 + math.cos(math.pi * i / 10))), lambda i: i),
    "even and odd": (lambda x, i: x * (i % 2), lambda i: i),
}


@pytest.mark.parametrize("name", HELD)
def test_numbers_inside(name: str) -> None:
    program, make = HELD[name]
    assert_two_versions(program, [(X, make(i)) for i in range(2, 9)])


def test_counters_of_a_module() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step, self.temperature, self.counts = 0, 1.0, {"calls": 0}
            self.linear = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            self.temperature *= 0.9
            self.counts["calls"] += 1
            return self.linear(x) / self.temperature + self.step * 0.5 + self.counts["calls"]

    eager = Model()
    held = copy.deepcopy(eager)
    stoker.log.clear()
    compiled = stoker.compile(held, fullgraph=True)
    for _ in range(8):
        torch.testing.assert_close(compiled(X), eager(X))
    assert (held.step, held.counts, held.temperature) == (eager.step, eager.counts, eager.temperature)
    assert len(stoker.events("captured")) == 2


# fmt: off
RESIZED: dict[str, Callable[[torch.Tensor], Any]] = {
    "by a fraction": lambda x: F.interpolate(x, size=(int(x.shape[2] * 0.5), int(x.shape[3] * 1.5))),
    "by a factor": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=(1.5, 0.75), mode="bicubic", align_corners=True),
    "recomputed": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", recompute_scale_factor=True),
    "to the size of another": lambda x: F.interpolate(x, size=x.mT.shape[2:], mode="bilinear"),
    "of sequences": lambda x: F.interpolate(x[0], scale_factor=2, mode="linear"),
    "a share of the rows": lambda x: (x[:, :, : int(x.shape[2] * 0.7)], x[:, :, int(x.shape[2] * 0.7) :], x[..., : round(x.shape[3] * 0.35)]),
    "a share of the largest": lambda x: x.flatten().topk(int(x.shape[2] * 0.9)).values,
    "by a third": lambda x: F.interpolate(x, size=(int(x.shape[2] * 1.3), round(x.shape[3] / 3) + 2)),
    "padded by a share": lambda x: F.pad(x, (0, int(x.shape[3] * 0.3), 0, math.ceil(x.shape[2] * 0.3))),
    "by a root": lambda x: x[:, :, : int(math.sqrt(x.shape[2] + 14))] * int(x.shape[3] * 0.7),
    "products of sizes": lambda x: (x.reshape(math.prod(x.shape)), x.sum() / math.prod(x.shape[2:]), x.view(-1, math.prod(x.shape[1:], start=1))),
    "sliced": lambda x: x[:, :, : math.floor(x.shape[2] * 0.25) + 1, : math.ceil(x.shape[3] * 0.375)],
}
# fmt: on


@pytest.mark.parametrize("name", RESIZED)
def test_sizes_times_a_number(name: str) -> None:
    assert_two_versions(RESIZED[name], [(torch.randn(1, 2, n, n + 1),) for n in range(4, 10)])


def assert_two_versions(program: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> None:
    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for given in inputs:
        torch.manual_seed(0)
        wanted = program(*copy.deepcopy(given))
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(*copy.deepcopy(given)), wanted)
    assert len(stoker.events("captured")) <= 2, [event.reason for event in stoker.events("recompile")]


def test_the_last_version_is_the_most_general() -> None:
    """Sizes that change one after the other use up the versions that the limit allows."""

    def program(*tensors: torch.Tensor) -> torch.Tensor:
        return sum(t.sum() * 2 for t in tensors)  # type: ignore[return-value]

    stoker.log.clear()
    compiled = stoker.compile(program, backend="eager", options={"version_limit": 3})
    sizes = [4] * 6
    for changed in range(6):
        sizes[changed] += 1
        tensors = [torch.ones(size) for size in sizes]
        torch.testing.assert_close(compiled(*tensors), program(*tensors))
    assert len(stoker.events("captured")) == 3
    assert not stoker.events("limit")
