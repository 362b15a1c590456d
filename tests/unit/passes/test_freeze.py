"""Kept weights: the same results as eager, and never those of weights that were."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.other = nn.BatchNorm2d(16, affine=False)
        self.third = nn.Conv2d(16, 16, 1)
        self.last = nn.Linear(16, 10)
        for norm in (self.norm, self.other):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        z = torch.relu(self.other(self.second(y)) + y)
        z = torch.clamp(self.second(z), 0, 6) + torch.clamp(self.third(z) + y, -1, 1)
        return self.last((z + self.third(z)).mean((2, 3)))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


X = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def agree(compiled: Any, eager: Any, x: torch.Tensor = X) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("freezing", [False, True])
def test_weights_change_between_calls(net: Net, freezing: bool) -> None:
    compiled = stoker.compile(copy.deepcopy(net), options={"freezing": freezing})

    def both(change: Any) -> None:
        for _ in range(8):
            agree(compiled, net)
        change(compiled)
        change(net)
        agree(compiled, net)

    both(lambda m: m.first.weight.detach().mul_(2))
    both(lambda m: m.first.weight.data.add_(1))
    both(lambda m: m.norm.running_mean.add_(1))
    both(lambda m: setattr(m.second, "weight", nn.Parameter(m.second.weight.detach() * 3)))
    state = {name: torch.full_like(value, 0.25) for name, value in net.state_dict().items()}
    both(lambda m: m.load_state_dict(state))
    both(lambda m: setattr(m.last, "bias", None))


def test_an_optimizer_step_is_seen(net: Net) -> None:
    compiled = stoker.compile(copy.deepcopy(net), options={"freezing": True})
    for _ in range(3):
        for model in (net, compiled):
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)
            model(X).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        agree(compiled, net)


def test_many_modules_share_one_entry() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)]
    call = stoker.compile(lambda layer, x: torch.relu(layer(x)))
    x = torch.randn(1, 4, 8, 8)
    for _ in range(6):
        for layer in layers:
            with torch.no_grad():
                torch.testing.assert_close(call(layer, x), torch.relu(layer(x)))


def test_freezing_folds_batch_norm(net: Net) -> None:
    def run(freezing: bool) -> list[str]:
        from stoker import pipeline

        seen: list[Any] = []
        original = pipeline.begin_graph

        def watch(module: Any, *arguments: Any, **options: Any) -> Any:
            seen.append(module)
            return original(module, *arguments, **options)

        pipeline.begin_graph = watch  # type: ignore[assignment]
        try:
            agree(stoker.compile(copy.deepcopy(net), options={"freezing": freezing}), net)
        finally:
            pipeline.begin_graph = original
        return [str(n.target) for n in seen[-1].graph.nodes if n.op == "call_function"]

    plain, frozen = run(False), run(True)
    assert plain.count("stoker.normalize.default") == 2 and "aten.rsqrt.default" in plain
    assert not {"stoker.normalize.default", "aten.rsqrt.default", "aten.sub.Tensor", "aten.mul.Tensor"} & {*frozen}
    assert frozen.count("aten.convolution.default") == plain.count("aten.convolution.default")


def test_inference_tensors_are_not_kept() -> None:
    with torch.inference_mode():
        layer = nn.Conv2d(2, 2, 3)
    compiled = stoker.compile(copy.copy(layer))
    x = torch.randn(1, 2, 6, 6)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), layer(x))
        layer.weight.mul_(2)
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize("way", ["mkl", "onednn"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("function", [nn.GELU(), nn.GELU("tanh"), nn.ReLU(), nn.Tanh()])
def test_linear_layers_are_packed(way: str, bias: bool, function: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "mkl" and not torch.backends.mkl.is_available():
        pytest.skip("this torch has no MKL")
    monkeypatch.setattr("stoker.pipeline.choose_linear", lambda *sizes, **how: way)
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(24, 40, bias=bias), function, nn.Linear(40, 8, bias=bias))
    compiled = stoker.compile(copy.deepcopy(layers))
    for x in (torch.randn(6, 24), torch.randn(2, 3, 24)):
        agree(compiled, layers, x)
    for model in (layers, compiled):
        model[0].weight.data.mul_(2)
    agree(compiled, layers, x)


def test_without_packing_no_weight_is_kept_twice() -> None:
    x = torch.randn(2, 3, 8, 8)
    for packing in (True, False):
        stoker.reset()
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
        with torch.no_grad():
            stoker.compile(model, options={"packing": packing})(x)
        (summary,) = (event.data for event in log.events() if event.kind == "compiled")
        assert any("mkldnn" in name for name, *_ in summary.calls) is packing


def _row(weight: torch.Tensor) -> None:
    weight.data[3].add_(100)


def _element(weight: torch.Tensor) -> None:
    weight.data[1, 2, 1, 1] = 7.0


def _swapped(weight: torch.Tensor) -> None:
    weight.data[[0, 5]] = weight.data[[5, 0]]


def _by_numpy(weight: torch.Tensor) -> None:
    weight.detach().numpy()[2, 1] *= -3


@pytest.mark.parametrize("write", [_row, _element, _swapped, _by_numpy])
@pytest.mark.parametrize("freezing", [False, True])
def test_writes_that_are_not_counted(write: Any, freezing: bool) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU()), torch.randn(1, 16, 8, 8)
    compiled = stoker.compile(lambda x: model(x), options={"freezing": freezing})
    with torch.no_grad():
        compiled(x)
        version = model[0].weight._version
        write(model[0].weight)
        assert model[0].weight._version == version
        torch.testing.assert_close(compiled(x), model(x))
