"""Whole training steps: forward, backward and update in one compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Compile, program


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))


def trained(compile: Compile, make: Callable[[Any], torch.optim.Optimizer], clip: float | None = None) -> Any:
    model = classifier()
    optimizer = make(model.parameters())

    @compile
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.detach()

    losses = [step(torch.randn(8, 10), torch.randint(0, 4, (8,))) for _ in range(4)]
    return losses, list(model.parameters())


@program("training steps")
def stochastic_descent(compile: Compile) -> Any:
    """SGD with momentum and weight decay."""
    return trained(compile, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3))


@program("training steps")
def adam(compile: Compile) -> Any:
    """Adam."""
    return trained(compile, lambda p: torch.optim.Adam(p, 1e-2))


@program("training steps")
def clipped_adamw(compile: Compile) -> Any:
    """AdamW with gradients clipped by their norm."""
    return trained(compile, lambda p: torch.optim.AdamW(p, 1e-2), clip=1.0)


@program("training steps")
def root_mean_square(compile: Compile) -> Any:
    """RMSprop, one tensor at a time."""
    return trained(compile, lambda p: torch.optim.RMSprop(p, 1e-2, foreach=False))


@program("training steps")
def accumulated(compile: Compile) -> Any:
    """Gradients of two batches accumulated before an update."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @compile
    def step(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for x, y in batches:
            loss = F.cross_entropy(model(x), y) / len(batches)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    losses = [step([(torch.randn(4, 10), torch.randint(0, 4, (4,))) for _ in range(2)]) for _ in range(3)]
    return losses, list(model.parameters())


@program("training steps")
def written_by_hand(compile: Compile) -> Any:
    """Descent by hand with torch.autograd.grad."""
    weights = [torch.randn(10, 16, requires_grad=True), torch.randn(16, 1, requires_grad=True)]

    @compile
    def step(x: torch.Tensor, y: torch.Tensor, rate: float) -> torch.Tensor:
        loss = F.mse_loss((x @ weights[0]).tanh() @ weights[1], y)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients):
                weight -= rate * gradient
        return loss.detach()

    losses = [step(torch.randn(6, 10), torch.randn(6, 1), 0.1 * 0.9**i) for i in range(4)]
    return losses, weights


@program("training steps")
def contrastive(compile: Compile) -> Any:
    """Contrastive loss of two views, batches that change."""
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))

    @compile
    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        za, zb = F.normalize(model(a), dim=-1), F.normalize(model(b), dim=-1)
        logits = za @ zb.mT / 0.1
        labels = torch.arange(len(a))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.mT, labels)) / 2

    found = []
    for n in (4, 6, 5):
        value = loss(torch.randn(n, 10), torch.randn(n, 10))
        value.backward()
        found.append(value)
    return found, [p.grad for p in model.parameters()]


@program("training steps")
def distilled(compile: Compile) -> Any:
    """Distillation: a student against a teacher's softened answers, with a report."""
    student, teacher = classifier(), classifier().eval()

    @compile
    def loss(x: torch.Tensor, y: torch.Tensor, temperature: float) -> Any:
        with torch.no_grad():
            wanted = F.softmax(teacher(x) / temperature, -1)
        logits = student(x)
        soft = F.kl_div(F.log_softmax(logits / temperature, -1), wanted, reduction="batchmean") * temperature**2
        total = 0.7 * soft + 0.3 * F.cross_entropy(logits, y)
        return total, {"loss": total.item(), "accuracy": (logits.argmax(-1) == y).float().mean().item()}

    found = []
    for temperature in (4.0, 3.0, 2.0):
        total, report = loss(torch.randn(6, 10), torch.randint(0, 4, (6,)), temperature)
        total.backward()
        found.append((total, report))
    return found, [p.grad for p in student.parameters()]


@program("training steps")
def adversarial(compile: Compile) -> Any:
    """Adversarial pair: both losses, and gradients for each."""
    generator, critic = nn.Linear(4, 10), classifier()

    @compile
    def losses(real: torch.Tensor) -> Any:
        fake = generator(torch.randn(real.shape[0], 4))
        ones, zeros = torch.ones(real.shape[0]), torch.zeros(real.shape[0])
        score = lambda x: critic(x)[:, 0]  # noqa: E731
        of_critic = F.binary_cross_entropy_with_logits(score(real), ones)
        of_critic = of_critic + F.binary_cross_entropy_with_logits(score(fake.detach()), zeros)
        return of_critic, F.binary_cross_entropy_with_logits(score(fake), ones)

    of_critic, of_generator = losses(torch.randn(6, 10))
    of_critic.backward(inputs=list(critic.parameters()), retain_graph=True)
    of_generator.backward(inputs=list(generator.parameters()))
    return of_critic, of_generator, [p.grad for p in (*critic.parameters(), *generator.parameters())]
