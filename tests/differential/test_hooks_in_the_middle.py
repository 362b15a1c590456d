"""Hooks on tensors in the middle of a program that also keep their gradient, or are asked for it: called as in eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stoker

Tensor = torch.Tensor


def _kept_after(x: Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.sin().sum().backward()
    return y.grad, x.grad


def _kept_before(x: Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + y.detach())
    y.sin().sum().backward()
    return y.grad, x.grad


def _removed(x: Tensor) -> Any:
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    y.retain_grad()
    loss = y.sin().sum()
    handle.remove()
    loss.backward()
    return y.grad, x.grad


def _two_tensors_twice(x: Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    z = y * 3
    z.retain_grad()
    z.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 2)
    loss = z.sin().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return y.grad, z.grad, x.grad


def _asked_for(x: Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return torch.autograd.grad(y.sin().sum(), [y, x])


def _on_a_leaf_too(x: Tensor) -> Any:
    handle = x.register_hook(lambda g: g - 1)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.sin().sum().backward()
    handle.remove()
    return y.grad, x.grad


def _kept_by_grad(x: Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    found = torch.autograd.grad(y.sin().sum(), x)
    return y.grad, found


def _kept_by_grad_and_backward(x: Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    loss = y.sin().sum()
    found = torch.autograd.grad(loss, [x, y], retain_graph=True)
    loss.backward()
    return y.grad, x.grad, found


ONE_GRAPH = [_kept_after, _kept_before, _removed, _two_tensors_twice, _asked_for]
BREAKS = [_on_a_leaf_too, _kept_by_grad, _kept_by_grad_and_backward]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", [*ONE_GRAPH, *BREAKS], ids=lambda p: p.__name__)
def test_hooks_in_the_middle(program: Callable[..., Any], backend: str) -> None:
    found = []
    for run in (program, stoker.compile(program, backend=backend, fullgraph=program in ONE_GRAPH)):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        found.append([[t.clone() for t in torch.utils._pytree.tree_leaves(run(x))] for _ in range(3)])
    torch.testing.assert_close(found[1], found[0])


def test_a_gradient_asked_for_in_the_middle_warns_of_nothing():
    """Whoever looks whether there was one before is not the program."""

    def step(x):
        y = x * 2
        y.sin().sum().backward(inputs=[y])
        return y.grad

    with warnings.catch_warnings(record=True, action="always") as caught:
        found, wanted = (call(torch.ones(2, requires_grad=True)) for call in (stoker.compile(step), step))
    torch.testing.assert_close(found, wanted)
    assert [str(w.message) for w in caught] == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_a_checkpoint_around_what_is_compiled(backend: str) -> None:
    """Recomputation ends by an error of its hook, in the middle of the graph."""
    program = lambda x: x.sin().exp().cos() * x  # noqa: E731
    found = []
    for call in (stoker.compile(program, backend=backend), program):
        x = torch.linspace(0, 1, 5, requires_grad=True)
        for _ in range(2):
            checkpoint(call, x, use_reentrant=False).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_a_hook_that_raises_runs_once(backend: str) -> None:
    packed = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(1)
        raise ValueError("no room")

    compiled = stoker.compile(lambda x: x.exp() * 2, backend=backend)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held), pytest.raises(ValueError, match="no room"):
        compiled(torch.ones(3, requires_grad=True))
    assert packed == [1]


def _sum_kept(seen: list[Any], x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: seen.append(g.sum().item()))
    return y.sin().sum()


def _count_kept(seen: list[Any], x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: seen.append(int((g > 0).sum()) + g.shape[0]))
    return y.sin().sum()


def _chosen_kept(seen: list[Any], x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: seen.append(g[g > 0].shape[0]))
    return y.sin().sum()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", [_sum_kept, _count_kept, _chosen_kept], ids=lambda p: p.__name__)
def test_hooks_that_keep_numbers_of_their_gradient(program: Any, backend: str, dynamic: bool | None) -> None:
    found = []
    for call in (program, stoker.compile(program, backend=backend, dynamic=dynamic)):
        seen: list[Any] = []
        for length in (3, 3, 4):
            x = torch.arange(float(length)).requires_grad_()
            call(seen, x).backward()
            found.append(x.grad)
        found.append(torch.tensor(seen))
    torch.testing.assert_close(found[4:], found[:4])


@pytest.mark.parametrize(
    "hook", [lambda g: g.mul_(2), lambda g: g.clamp_(max=1.0) and None, lambda g: g.__setitem__(0, 0)], ids=range(3)
)
def test_a_hook_that_writes_to_its_gradient(hook: Any) -> None:
    def step(x):
        y = x * 3
        y.register_hook(hook)
        (y * y).mean(0).sum().backward()
        return x.grad.clone()

    found, wanted = (call(torch.ones(1, requires_grad=True)) for call in (stoker.compile(step), step))
    torch.testing.assert_close(found, wanted)
