"""Tensors that an `autograd.Function`, or a function that is one node, reaches by a closure or a module: read at each call, and the
same to autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function

import stoker


def by_a_closure(layer: nn.Linear) -> Any:
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * (layer.weight * 2).exp().sum() + layer(x)

        @staticmethod
        def backward(ctx, g):
            return g * (layer.weight * 2).exp().sum() + g @ layer.weight

    return lambda x: Scaled.apply(x).sin()


def in_the_backward(layer: nn.Linear) -> Any:
    class Late(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * layer.bias.exp()

    return lambda x: Late.apply(x).cos()


def given_and_reached(layer: nn.Linear) -> Any:
    class Again(Function):
        """Computes its forward again in the backward, as checkpoints written by hand do."""

        @staticmethod
        def forward(ctx, function, x, *parameters):
            ctx.function, ctx.parameters = function, parameters
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.function(x)
            return None, *torch.autograd.grad(y, (x, *ctx.parameters), g, allow_unused=True)

    return lambda x: Again.apply(layer, x, *layer.parameters()).sin()


def allowed_in_the_graph(layer: nn.Linear) -> Any:
    @stoker.allow_in_graph
    def scaled(x):
        return x * (layer.weight * 2).exp().sum() + layer(x)

    return lambda x: scaled(x).sin()


CHANGES = {
    "in place": lambda layer: layer.weight.data.mul_(2),
    "counted": lambda layer: nn.init.constant_(layer.bias, 0.3),
    "other memory": lambda layer: setattr(layer.weight, "data", torch.full((3, 3), 0.1)),
    "another parameter": lambda layer: setattr(layer, "bias", nn.Parameter(torch.ones(3))),
}


@pytest.mark.parametrize("make", [by_a_closure, in_the_backward, given_and_reached, allowed_in_the_graph])
def test_what_changes_between_calls_is_seen(make: Any) -> None:
    found = []
    for compile in (lambda f: f, stoker.compile):
        torch.manual_seed(0)
        layer = nn.Linear(3, 3)
        function, seen = compile(make(layer)), []
        for change in (lambda layer: None, *CHANGES.values()):
            change(layer)
            layer.zero_grad()
            x = torch.ones(2, 3, requires_grad=True)
            y = function(x)
            y.sum().backward()
            gradients = [torch.zeros(()) if p.grad is None else p.grad.clone() for p in layer.parameters()]
            seen.append([y.detach(), x.grad, *gradients])
        with torch.no_grad():
            for change in CHANGES.values():
                change(layer)
                seen.append([function(torch.ones(2, 3))])
        found.append(seen)
    torch.testing.assert_close(found[1], found[0])


class Tabled(Function):
    """What it makes itself is no tensor of others."""

    @staticmethod
    def forward(ctx, x):
        return x * torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3) * (1 + 2j).real

    @staticmethod
    def backward(ctx, g):
        return g * torch.tensor([1.0, 2.0, 3.0]) + torch.zeros(3)


def test_tensors_made_inside_are_compiled() -> None:
    stoker.log.clear()
    compiled = stoker.compile(lambda x: Tabled.apply(x).exp(), fullgraph=True)
    found = []
    for function in (compiled, lambda x: Tabled.apply(x).exp()):
        x = torch.ones(2, 3, requires_grad=True)
        function(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)
    assert not stoker.events("as captured")
