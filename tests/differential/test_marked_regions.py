"""Functions that are marked to be compiled once (`torch.compiler.nested_compile_region`): entered like others, with what they change."""

from __future__ import annotations

import pytest
import torch

import stoker

SEEN: list[str] = []


@torch.compiler.nested_compile_region
def scaled(x, y, factor=2.0):
    return torch.sin(x) * y * factor


@torch.compiler.nested_compile_region
def pair(x):
    return {"sum": x.sum(), "rows": (x + 1, x.shape[0])}


@torch.compiler.nested_compile_region
def twice(x):
    return scaled(scaled(x, x), x, factor=0.5)


@torch.compiler.nested_compile_region
def noted(x):
    SEEN.append("called")
    return x.mul_(2)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        torch.nn.init.eye_(self.linear.weight)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return self.linear(x).relu()


LAYERS = torch.nn.Sequential(Layer(), Layer(), Layer())
PROGRAMS = {
    "called twice": lambda x: scaled(x, x) + scaled(x + 1, x, factor=3.0),
    "nested": twice,
    "structures": pair,
    "effects": lambda x: noted(x.clone()) + 1,
    "of a module": LAYERS,
    "lambdas": lambda x: torch.compiler.nested_compile_region(lambda a: a @ a)(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_marked_regions(name: str) -> None:
    def observed(function):
        SEEN.clear()
        x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        made = function(x)
        tensors = [t for t in torch.utils._pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
        return made, torch.autograd.grad(sum(t.sum() for t in tensors), x), len(SEEN)

    program = PROGRAMS[name]
    torch.testing.assert_close(observed(stoker.compile(program, fullgraph=True)), observed(program))
