"""Models on a CUDA device: one graph, equal to eager, forward and backward. Runs where there is one."""

from __future__ import annotations

import copy

import pytest
import torch

import stoker
from bench.zoo import ZOO
from stoker.backends import look_up

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NAMES = ["bert", "gpt2", "llama", "t5", "vit", "convnext", "resnet"]


def made(name, dtype):
    torch.manual_seed(0)
    model, inputs = ZOO[name]()
    cast = {key: value.to("cuda", dtype if value.is_floating_point() else None) for key, value in inputs.items()}
    return model.to("cuda", dtype), cast


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("name", NAMES)
def test_inference(name, backend, dtype):
    model, inputs = made(name, dtype)
    model.eval()
    compiled = copy.deepcopy(model)
    graphs = []
    run = look_up(backend)[1]
    compiled = stoker.compile(compiled, backend=lambda g, e: graphs.append(g) or run(g, e))
    with torch.no_grad():
        expected = model(**inputs)[0]
        for _ in range(2):
            found = compiled(**inputs)[0]
            assert found.dtype is expected.dtype and found.stride() == expected.stride()
            assert apart(found, expected) < 4e-3
    assert len(graphs) == 1


def apart(a, b):
    """The distance of two results, as a share of their size: convolutions and products choose other kernels for other layouts."""
    return float((a.double() - b.double()).norm() / b.double().norm())


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("name", NAMES)
def test_training_step(name, backend):
    """Without dropout: with it, transformers passes BERT a mask only when it is compiled, and another kernel draws the numbers."""
    model, inputs = made(name, torch.float32)
    model.eval()
    compiled = copy.deepcopy(model)
    compiled = stoker.compile(compiled, backend=backend)
    losses = []
    for network in (model, compiled):
        torch.manual_seed(1)
        loss = network(**inputs)[0].square().mean()
        loss.backward()
        losses.append(loss.detach())
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-4)
    for (key, a), b in zip(model.named_parameters(), compiled.parameters()):
        if a.grad is not None:
            assert apart(b.grad, a.grad) < 1e-2 or float(a.grad.abs().max()) < 1e-6, key


class Residual(torch.nn.Module):
    """Convolutions in half precision, whose images are turned in training."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(32), torch.nn.ReLU()
        )
        self.a, self.b = torch.nn.Conv2d(32, 64, 3, 2, 1, bias=False), torch.nn.Conv2d(64, 64, 3, 1, 1, bias=False)
        self.m, self.n = torch.nn.BatchNorm2d(64), torch.nn.BatchNorm2d(64)
        self.short, self.last = torch.nn.Conv2d(32, 64, 1, 2), torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(self.stem(x), 3, 2, 1)
        y = torch.relu(self.n(self.b(torch.relu(self.m(self.a(x))))) + self.short(x))
        return y, self.last(y.mean((2, 3)).view(y.shape[0], -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_images_are_turned_in_training(dtype):
    torch.manual_seed(0)
    model = Residual().to("cuda", dtype)
    compiled, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    x = torch.randn(8, 3, 64, 64, device="cuda", dtype=dtype)
    results = {}
    for name, network in {"eager": model, "ours": stoker.compile(compiled, fullgraph=True), "exact": exact}.items():
        given = x.clone().to(next(network.parameters()).dtype).requires_grad_()
        for _ in range(2):
            torch.manual_seed(1)
            given.grad = None
            network.zero_grad()
            image, scores = network(given)
            (image.square().mean() + scores.square().mean()).backward()
        results[name] = [image, given.grad, *(p.grad for p in network.parameters()), *network.buffers()]
    for eager, ours, truth in zip(*results.values(), strict=True):
        assert ours.stride() == eager.stride() and ours.dtype is eager.dtype
        assert apart(ours, truth) <= 1.5 * apart(eager, truth) + 1e-3
