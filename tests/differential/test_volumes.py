"""Convolutions of volumes that lie channels last: some of eager's kernels know one order alone, and strides are eager's."""

from __future__ import annotations

import copy

import pytest
import torch

import stoker

MODULES = {
    "plain": lambda: torch.nn.Conv3d(2, 4, 3, padding=1),
    "strided": lambda: torch.nn.Conv3d(2, 4, 3, stride=2),
    "dilated": lambda: torch.nn.Conv3d(2, 4, 3, dilation=2, padding=2),
    "in groups": lambda: torch.nn.Conv3d(2, 4, 3, groups=2, padding=1),
    "large": lambda: torch.nn.Conv3d(2, 4, 5, padding=2),
    "transposed": lambda: torch.nn.ConvTranspose3d(2, 2, 2, stride=2),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_strides(name, dtype, train, dynamic):
    torch.manual_seed(0)
    model = MODULES[name]().to(dtype)
    compiled = stoker.compile(copy.deepcopy(model), dynamic=dynamic)
    for batch in (1, 2, 3):
        x = torch.randn(batch, 2, 4, 5, 6, dtype=dtype).to(memory_format=torch.channels_last_3d).requires_grad_(train)
        y = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(train)
        with torch.set_grad_enabled(train):
            found, wanted = compiled(x), model(y)
        assert found.stride() == wanted.stride(), batch
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        if train:
            seed = torch.randn_like(wanted)
            mine, eager = torch.autograd.grad(found, x, seed), torch.autograd.grad(wanted, y, seed)
            torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)
            assert mine[0].stride() == eager[0].stride(), batch
