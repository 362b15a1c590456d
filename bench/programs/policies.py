"""Updates of reinforcement learning."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Compile, program


def net(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, 32), nn.Tanh(), nn.Linear(32, outside))


def transitions(count: int = 8) -> tuple[torch.Tensor, ...]:
    return (
        torch.randn(count, 4), torch.randint(0, 3, (count,)), torch.randn(count), torch.randn(count, 4),
        torch.rand(count) < 0.2,
    )  # fmt: skip


@program("reinforcement learning")
def deep_q(compile: Compile) -> Any:
    """Deep Q-learning: loss against a target network, and its gradients."""
    q = net(4, 3)
    target = copy.deepcopy(q).requires_grad_(False)

    @compile
    def loss(state: Any, action: Any, reward: Any, following: Any, done: Any) -> torch.Tensor:
        best = target(following).max(-1).values
        wanted = reward + 0.99 * best * (~done)
        return F.smooth_l1_loss(q(state).gather(1, action[:, None]).squeeze(1), wanted)

    found = []
    for n in (8, 12, 10):
        value = loss(*transitions(n))
        value.backward()
        found.append(value)
    return found, [p.grad for p in q.parameters()]


@program("reinforcement learning")
def proximal_policy(compile: Compile) -> Any:
    """Proximal policy optimization: clipped loss, value loss, entropy."""
    actor, critic = net(4, 3), net(4, 1)

    @compile
    def loss(state: Any, action: Any, before: Any, advantage: Any, returns: Any, clip: float) -> torch.Tensor:
        log_probabilities = actor(state).log_softmax(-1)
        ratio = (log_probabilities.gather(1, action[:, None]).squeeze(1) - before).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
        return -gain + 0.5 * F.mse_loss(critic(state).squeeze(-1), returns) - 0.01 * entropy

    found = []
    for clip in (0.2, 0.15, 0.1):
        state, action, reward, _, _ = transitions()
        value = loss(state, action, torch.randn(8) - 1, reward, reward, clip)
        value.backward()
        found.append(value)
    return found, [p.grad for p in actor.parameters()]


@program("reinforcement learning")
def generalized_advantage(compile: Compile) -> Any:
    """Generalized advantage estimation: a loop backwards over time."""

    @compile
    def advantages(reward: torch.Tensor, value: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        found, last = torch.zeros_like(reward), torch.zeros(reward.shape[1])
        for t in reversed(range(reward.shape[0])):
            alive = 1.0 - done[t]
            last = reward[t] + 0.99 * value[t + 1] * alive - value[t] + 0.99 * 0.95 * alive * last
            found[t] = last
        return found

    return [advantages(torch.randn(6, 3), torch.randn(7, 3), (torch.rand(6, 3) < 0.2).float()) for _ in range(2)]


@program("reinforcement learning")
def soft_actor_critic(compile: Compile) -> Any:
    """Soft actor-critic: reparametrized actions, twin critics, temperature."""
    actor, first, second = net(4, 4), net(6, 1), net(6, 1)
    temperature = torch.zeros((), requires_grad=True)

    @compile
    def loss(state: torch.Tensor) -> Any:
        mean, log_deviation = actor(state).chunk(2, -1)
        deviation = log_deviation.clamp(-5, 2).exp()
        raw = mean + deviation * torch.randn_like(mean)
        action = raw.tanh()
        density = -0.5 * ((raw - mean) / deviation).square() - deviation.log() - (1 - action.square() + 1e-6).log()
        together = torch.cat([state, action], -1)
        value = torch.min(first(together), second(together)).squeeze(-1)
        return (temperature.exp().detach() * density.sum(-1) - value).mean(), -(
            temperature * (density.sum(-1) - 2).detach()
        ).mean()

    policy, tempered = loss(torch.randn(8, 4))
    (policy + tempered).backward()
    return policy, tempered, temperature.grad, [p.grad for p in actor.parameters()]


@program("reinforcement learning")
def averaged_target(compile: Compile) -> Any:
    """Target network moved towards the learning one."""
    online, target = net(4, 3), net(4, 3)

    @compile
    @torch.no_grad()
    def move(rate: float) -> None:
        for theirs, ours in zip(target.parameters(), online.parameters()):
            theirs.mul_(1 - rate).add_(ours, alpha=rate)

    for rate in (0.1, 0.05, 0.2):
        move(rate)
    return list(target.parameters())


@program("reinforcement learning")
def policy_gradient(compile: Compile) -> Any:
    """REINFORCE with torch.distributions."""
    policy = net(4, 3)

    @compile
    def loss(state: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
        distribution = torch.distributions.Categorical(logits=policy(state), validate_args=False)
        action = distribution.sample()
        return -(distribution.log_prob(action) * returns).mean() - 0.01 * distribution.entropy().mean()

    value = loss(torch.randn(8, 4), torch.randn(8))
    value.backward()
    return value, [p.grad for p in policy.parameters()]


@program("reinforcement learning")
def replayed_priorities(compile: Compile) -> Any:
    """Prioritized replay: sampling by priority, weights, new priorities."""

    @compile
    def draw(priorities: torch.Tensor, beta: float) -> Any:
        probabilities = priorities.pow(0.6) / priorities.pow(0.6).sum()
        index = torch.multinomial(probabilities, 4)
        weight = (len(priorities) * probabilities[index]).pow(-beta)
        return index, weight / weight.max()

    return [draw(torch.rand(n) + 0.1, beta) for n, beta in ((8, 0.4), (10, 0.5), (12, 0.6))]
