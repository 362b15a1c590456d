"""Lazy modules: the first call gives them their parameters, as in eager, and is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

import stoker

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.LazyLinear(3)), (2, 5)),
    "two": (lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(4)), (2, 5)),
    "convolution": (lambda: nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(4)), (2, 3, 5, 5)),
    "transposed": (lambda: nn.Sequential(nn.LazyConvTranspose1d(3, 2), nn.LazyConv1d(4, 2)), (2, 3, 5)),
    "among others": (lambda: nn.Sequential(nn.Linear(5, 6), nn.LazyLinear(2), nn.Tanh()), (2, 5)),
    "six": (lambda: nn.Sequential(*(nn.LazyLinear(n) for n in range(2, 8))), (2, 5)),
    "itself": (lambda: nn.LazyLinear(3), (2, 5)),
}  # fmt: skip


def outcome(make: Callable[[], nn.Module], sizes: tuple[int, ...], compile: Callable[[Any], Any]) -> list[Any]:
    torch.manual_seed(0)
    model = make()
    run, found = compile(model), []
    for _ in range(3):
        result = run(torch.randn(sizes))
        result.square().sum().backward()
        found.append(result.detach())
    state = model.state_dict()
    return [found, list(state), list(state.values()), [p.grad for p in model.parameters()], torch.get_rng_state()]


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str) -> None:
    make, sizes = MODELS[name]
    mine = outcome(make, sizes, lambda model: stoker.compile(model, fullgraph=name != "itself"))
    torch.testing.assert_close(mine[2:], outcome(make, sizes, lambda model: model)[2:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine[0], outcome(make, sizes, lambda model: model)[0], rtol=1e-4, atol=1e-5)


def test_the_module_becomes_what_it_would() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    stoker.compile(lambda x: model(x), fullgraph=True)(torch.ones(2, 5))
    assert type(model[0]) is nn.Linear and model[0].in_features == 5 and not model[0]._forward_pre_hooks


def test_random_numbers_before_it_are_drawn_before() -> None:
    def program(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x + torch.rand_like(x))

    found = []
    for function in (program, stoker.compile(program)):
        torch.manual_seed(0)
        found.append([function(nn.LazyLinear(3), torch.ones(2, 5)), torch.get_rng_state()])
    torch.testing.assert_close(*found)


class Given(NamedTuple):
    parts: Any
    rest: torch.Tensor


class LikeTheFirst(LazyModuleMixin, nn.Module):
    """Its parameter is of the size of a tensor somewhere in what it is given."""

    def __init__(self, find: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.find = find
        self.weight = UninitializedParameter()

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.weight.materialize(self.find(*args, **kwargs).shape)
                self.weight.fill_(0.5)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.find(*args, **kwargs) * self.weight


X = torch.randn(2, 3)
CONTAINERS: dict[str, tuple[Callable[..., torch.Tensor], tuple[Any, ...], dict[str, Any]]] = {
    "a list": (lambda given: given[1], ([X * 2, X, None],), {}),
    "a tuple in a list": (lambda given: given[0][1], ([(1, X)],), {}),
    "a dictionary": (lambda given: given["b"][0], ({"a": 1, "b": [X]},), {}),
    "a named tuple": (lambda given: given.parts["a"][0] + given.rest, (Given({"a": [X]}, X),), {}),
    "a keyword": (lambda first, *, given: given[0] + first, (X,), {"given": (X, "text")}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_given_containers(name: str) -> None:
    find, args, kwargs = CONTAINERS[name]

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = LikeTheFirst(find)

        def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            return self.inner(*args, **kwargs) + 1

    plain, compiled = Around(), stoker.compile(Around(), fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args, **kwargs), plain(*args, **kwargs))
    torch.testing.assert_close(compiled.state_dict(), plain.state_dict())
