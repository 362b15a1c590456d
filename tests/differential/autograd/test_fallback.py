"""A half of a training graph that cannot be compiled runs through ATen, and works with the compiled other half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import pipeline
from stoker.lower.registry import CannotLower


@torch.library.custom_op("stoker_test_fallback::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    """An operator that lays its result out otherwise than it says."""
    return x.exp().t().contiguous().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


turned.register_autograd(
    lambda ctx, gradient: gradient * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)


def otherwise(x: Any) -> Any:
    return turned(x).sum(1)


def convolution(x: Any) -> Any:
    image = x.view(1, 1, *x.shape)
    return F.gelu(F.conv2d(image, image[..., :2, :2] * 0.5, padding=1)).softmax(-1).sum((2, 3))


def transposed(x: Any) -> Any:
    return F.layer_norm((x @ x.t()).t().tanh(), (x.shape[0],)).sigmoid().t().exp()


PROGRAMS = [otherwise, convolution, transposed]


@pytest.fixture(params=[0, 1], ids=["forward", "backward"])
def fallen(request: Any, monkeypatch: Any) -> Iterator[list[int]]:
    """Make the first or the second graph of each compilation one that cannot be lowered."""
    seen: list[int] = []
    begun = pipeline._begun

    def sometimes(*arguments: Any, **keywords: Any) -> Any:
        seen.append(len(seen))
        if seen[-1] == request.param:
            raise CannotLower("the test forbids it")
        return begun(*arguments, **keywords)

    monkeypatch.setattr(pipeline, "_begun", sometimes)
    stoker.reset()
    yield seen
    stoker.reset()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_halves_agree(program: Callable[..., Any], dynamic: bool, fallen: list[int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5)
    results, gradients = [], []
    for function in (stoker.compile(program, dynamic=dynamic), program):
        leaf = x.clone().requires_grad_()
        result = function(leaf)
        result.backward(torch.arange(result.numel(), dtype=torch.float32).view(result.shape))
        results.append(result)
        gradients.append(leaf.grad)
    assert fallen == [0, 1]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
    assert gradients[0].stride() == gradients[1].stride()
