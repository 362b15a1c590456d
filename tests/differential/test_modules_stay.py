"""A compiled module is still that module."""

from __future__ import annotations

import copy
import pickle

import torch

import stoker


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) + self.scale if hasattr(self, "scale") else self.inner(x)

    def helper(self):
        return "helped"


def test_identity_and_state():
    model = Net()
    keys = list(model.state_dict())
    compiled = stoker.compile(model, backend="eager")
    assert compiled is model
    assert type(compiled) is Net
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == keys
    assert compiled.helper() == "helped"
    x = torch.randn(2, 4)
    compiled.eval()
    expected = torch.nn.functional.linear(x, model.inner[0].weight, model.inner[0].bias)
    assert torch.equal(compiled(x), expected)
    assert compiled.calls == 1


def test_train_and_eval_are_two_versions():
    model = stoker.compile(Net(), backend="eager")
    x = torch.randn(8, 4)
    model.train()
    torch.manual_seed(0)
    trained = model(x)
    model.eval()
    assert not torch.equal(trained, model(x))
    model.train()
    torch.manual_seed(0)
    assert torch.equal(trained, model(x))


def test_hooks_added_later_run():
    model = stoker.compile(Net().eval(), backend="eager")
    x = torch.randn(2, 4)
    plain = model(x)
    seen = []
    handle = model.register_forward_hook(lambda module, args, output: seen.append("outer") or output * 2)
    inner = model.inner[0].register_forward_pre_hook(lambda module, args: seen.append("inner"))
    assert torch.equal(model(x), plain * 2)
    assert seen == ["inner", "outer"]
    handle.remove()
    inner.remove()
    assert torch.equal(model(x), plain)


def test_attributes_set_later_are_seen():
    model = stoker.compile(Net().eval(), backend="eager")
    x = torch.randn(2, 4)
    plain = model(x)
    model.scale = 3.0
    assert torch.equal(model(x), plain + 3.0)
    del model.scale
    assert torch.equal(model(x), plain)


def test_deepcopy_and_pickle():
    model = stoker.compile(Net().eval(), backend="eager")
    x = torch.randn(2, 4)
    expected = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is Net
        assert torch.equal(other(x), expected)
        assert torch.equal(stoker.compile(other, backend="eager")(x), expected)


def test_parameters_replaced():
    model = stoker.compile(Net().eval(), backend="eager")
    x = torch.randn(2, 4)
    model(x)
    model.inner[0].weight = torch.nn.Parameter(torch.zeros(4, 4))
    assert torch.equal(model(x), model.inner[0].bias.expand(2, 4))
    model.inner[0] = torch.nn.Identity()
    assert torch.equal(model(x), x)
    assert model.double()(x.double()).dtype is torch.float64
