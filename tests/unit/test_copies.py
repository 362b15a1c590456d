"""Compiled functions and methods are copied and pickled as those they are made from."""

from __future__ import annotations

import copy
import pickle

import torch

import stoker


@stoker.compile(backend="eager")
def doubled(x):
    return x * 2


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x):
        return x * self.scale


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.run = stoker.compile(self.run, backend="eager", fullgraph=True)
        self.doubled = doubled

    def run(self, x):
        return x * self.weight

    def forward(self, x):
        return self.doubled(self.run(x))


def test_a_function_is_itself() -> None:
    assert copy.copy(doubled) is doubled and copy.deepcopy([doubled])[0] is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def tripled(x):
    return x * 3


def test_a_function_beside_the_one_it_is_made_from() -> None:
    compiled = stoker.compile(tripled, backend="eager", fullgraph=True)
    for other in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled), copy.copy(compiled)):
        assert type(other) is type(compiled) and other.__wrapped__ is tripled
        assert other(torch.ones(2)).tolist() == [3, 3]


def test_a_method_goes_with_its_object() -> None:
    x, held = torch.ones(2), Holder()
    other = copy.deepcopy(held)
    other.weight.data.fill_(5)
    assert held(x).tolist() == [2, 2] and other(x).tolist() == [10, 10]
    read = pickle.loads(pickle.dumps(other))
    read.weight.data.fill_(7)
    assert read(x).tolist() == [14, 14] and other(x).tolist() == [10, 10]
    assert type(other.run) is type(held.run) is type(read.run)


def test_a_callable_object() -> None:
    x, compiled = torch.ones(2), stoker.compile(Scaled(3.0), backend="eager")
    other = copy.deepcopy(compiled)
    other.__wrapped__.scale = 4.0
    assert compiled(x).tolist() == [3, 3] and other(x).tolist() == [4, 4]
    assert copy.copy(compiled)(x).tolist() == [3, 3]
