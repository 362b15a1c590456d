"""Trails over modules: what a user does to a model between two calls is seen by a warm program."""

import types

import pytest
import torch
from torch import nn

from stoker import _C

A, C = types.SimpleNamespace(**_C.ACCESSORS), types.SimpleNamespace(**_C.CHECKS)
HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def plain():
    return None


class Guards:
    """The guards of a module tree, as capture asks for them."""

    def __init__(self, module):
        self.count = self.slots = 0
        self.roots = [self.module(module, A.LOCAL, 0)]

    def check(self, kind, argument):
        self.count += 1
        return (kind, argument, self.count)

    def parameter(self, name, tensor):
        self.slots += 1
        return (A.DICT_ITEM, name, [self.check(C.TENSOR, _C.tensor_spec(tensor))], [], self.slots - 1)

    def module(self, module, accessor, argument):
        own, space = [self.check(C.TYPE_IS, type(module))], module.__dict__
        lacks = [self.check(C.LACKS_KEY, name) for name in ("forward", "weight")]
        children = [
            (A.DICT_ITEM, "training", [self.check(C.EQUALS, module.training)], [], -1),
            (A.DICT_ITEM, "_parameters", [], [self.parameter(n, t) for n, t in space["_parameters"].items()], -1),
            (A.DICT_ITEM, "_modules", [], [self.module(m, A.DICT_ITEM, n) for n, m in space["_modules"].items()], -1),
        ]
        for name in HOOK_TABLES:
            checks = [self.check(C.TYPE_IS, type(space[name])), self.check(C.LENGTH, 0)]
            children.append((A.DICT_ITEM, name, checks, [], -1))
        return (accessor, argument, own, [(A.DICT, None, lacks, children, -1)], -1)

    def program(self):
        return _C.GuardProgram(self.roots, self.slots)


def make_model():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.LayerNorm(3))


class OtherLinear(nn.Linear):
    pass


def _swap_data(model):
    model[1][0].weight.data = torch.zeros(5, 2)


CHANGES = {
    "module swapped": lambda m: m[1].__setitem__(0, nn.Linear(2, 4)),
    "module added": lambda m: m[1]._modules.update({"0": nn.ReLU()}),
    "module's class": lambda m: setattr(m[1][0], "__class__", OtherLinear),
    "parameter swapped": lambda m: setattr(m[1][0], "weight", nn.Parameter(torch.zeros(3, 7))),
    "parameter removed": lambda m: setattr(m[1][0], "bias", None),
    "parameter's data": _swap_data,
    "parameter's strides": lambda m: setattr(m[0].weight, "data", torch.zeros(2, 2).T),
    "requires_grad": lambda m: m[1][0].weight.requires_grad_(False),
    "dtype": lambda m: m[2].to(torch.float64),
    "device": lambda m: m[2].to("meta"),
    "training": lambda m: m.eval(),
    "forward hook": lambda m: m[1].register_forward_hook(print),
    "pre-hook": lambda m: m[1][1].register_forward_pre_hook(print),
    "backward hook": lambda m: m[0].register_full_backward_hook(print),
    "own forward": lambda m: setattr(m[1][1], "forward", print),
    "weight in the dictionary": lambda m: m[0].__dict__.update(weight=1),
    "dictionary replaced": lambda m: setattr(m[0], "__dict__", {**m[0].__dict__, "training": False}),
    "tables replaced": lambda m: setattr(m[0], "_parameters", {}),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("counts", [False, True])
def test_each_change_of_a_model_is_seen(case, counts):
    model = make_model()
    guards = Guards(model)
    program = guards.program()
    for turn in range(12):
        assert isinstance(program.check([model], plain), tuple)
        if counts:  # dictionaries that keep changing
            model.counter = model[1].counter = model[1][0].counter = turn
    assert program.followed >= (4 if counts else 11)
    CHANGES[case](model)
    expected = guards.program().check([model], plain)
    assert isinstance(expected, int)
    assert [program.check([model], plain) for _ in range(3)] == [expected] * 3


def test_what_training_does_keeps_the_trail():
    model = make_model()
    program = Guards(model).program()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(10):
        fetched = program.check([model], plain)
        assert all(a is b for a, b in zip(fetched, model.parameters(), strict=True))
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert program.followed == 9


def test_swapped_parameters_of_the_same_kind_are_fetched():
    model = make_model()
    program = Guards(model).program()
    for _ in range(20):
        model[1][0].weight = nn.Parameter(torch.zeros(3, 2))
        for _ in range(2):
            fetched = program.check([model], plain)
            assert all(a is b for a, b in zip(fetched, model.parameters(), strict=True))
