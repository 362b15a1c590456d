"""The fake tensor as a tensor: what Python code does with tensors besides calling operators."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from stoker.fake import DataDependent, FakeMode, FakeTensor


@pytest.fixture
def mode() -> FakeMode:
    return FakeMode()


def consistent(fake: Any) -> bool:
    """Does the record say the same as the tensor's own fields?"""
    m = fake.meta
    fields = (fake.dtype, tuple(fake.shape), fake.stride(), fake.storage_offset(), fake.device)
    return fields == (m.dtype, m.sizes, m.strides, m.offset, m.device)


def test_reports_the_real_metadata(mode: FakeMode) -> None:
    real = torch.zeros(4, 6, dtype=torch.float16)[1:, ::2].t()
    fake = mode.from_real(real)
    assert isinstance(fake, FakeTensor) and consistent(fake)
    assert (fake.shape, fake.stride(), fake.storage_offset()) == (real.shape, real.stride(), real.storage_offset())
    assert (fake.dtype, fake.device, fake.layout) == (real.dtype, real.device, real.layout)
    assert fake.is_contiguous() == real.is_contiguous()
    image = mode.from_real(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last))
    assert image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()


def test_same_tensor_same_fake_and_shared_memory(mode: FakeMode) -> None:
    real = torch.zeros(4, 4)
    view = real[1:]
    assert mode.from_real(real) is mode.from_real(real)
    assert mode.from_real(view).memory is mode.from_real(real).memory
    assert mode.from_real(torch.zeros(4, 4)).memory is not mode.from_real(real).memory


def test_autograd_identity(mode: FakeMode) -> None:
    leaf = torch.zeros(3, requires_grad=True)
    assert mode.from_real(leaf).is_leaf and mode.from_real(leaf).requires_grad
    inner = mode.from_real(leaf * 2)
    assert inner.requires_grad and not inner.is_leaf
    assert isinstance(mode.from_real(nn.Parameter(torch.zeros(3))), nn.Parameter)


def test_data_detach_and_grad(mode: FakeMode) -> None:
    x = mode.from_real(torch.zeros(3, 4, requires_grad=True))
    with mode:
        (x * 2).sum().backward()
        assert isinstance(x.grad, FakeTensor) and x.grad.shape == (3, 4)
        assert not x.detach().requires_grad and x.detach().memory is x.memory
        assert not x.data.requires_grad and x.data.shape == (3, 4)
        x.data = torch.zeros(5, 2)
        assert x.shape == (5, 2) and consistent(x)
        assert (x + 1).shape == (5, 2)
        y = torch.zeros(2).requires_grad_()
        assert y.requires_grad and y.is_leaf


def test_parameter_and_deepcopy(mode: FakeMode) -> None:
    with mode:
        parameter = nn.Parameter(torch.zeros(3, 4))
        assert isinstance(parameter, nn.Parameter) and parameter.requires_grad
        twin = copy.deepcopy(parameter)
        assert twin.shape == (3, 4) and twin.memory is not parameter.memory
        module = copy.deepcopy(nn.Linear(3, 4))
        assert isinstance(module.weight, FakeTensor) and module(torch.zeros(2, 3)).shape == (2, 4)


def test_views_alias_and_in_place_returns_itself(mode: FakeMode) -> None:
    with mode:
        x = torch.zeros(3, 4)
        v = x.view(12)[2:]
        assert v._is_view() and v._base is x and v.memory is x.memory and v.storage_offset() == 2
        assert x.add_(1) is x
        assert x.clone().memory is not x.memory


@pytest.mark.parametrize(
    ("change", "sizes", "strides"),
    [
        (lambda x: x.t_(), (4, 3), (1, 4)),
        (lambda x: x.transpose_(0, 1), (4, 3), (1, 4)),
        (lambda x: x.unsqueeze_(0), (1, 3, 4), (12, 4, 1)),
        (lambda x: x.unsqueeze_(0).squeeze_(0), (3, 4), (4, 1)),
        (lambda x: x.resize_(2, 2), (2, 2), (2, 1)),
        (lambda x: x.as_strided_((2,), (3,)), (2,), (3,)),
        (lambda x: x.set_(torch.zeros(7)), (7,), (1,)),
    ],
)
def test_metadata_changes_in_place(mode: FakeMode, change: Any, sizes: Any, strides: Any) -> None:
    with mode:
        x = torch.zeros(3, 4)
        assert change(x) is x
    assert (tuple(x.shape), x.stride()) == (sizes, strides) and consistent(x)
    with mode:
        assert (x + 1).shape == sizes


def test_set_shares_memory(mode: FakeMode) -> None:
    with mode:
        x, y = torch.zeros(3), torch.zeros(5)
        x.set_(y)
        assert x.memory is y.memory


def test_constants_are_remembered_until_written(mode: FakeMode) -> None:
    with mode:
        x = torch.tensor(3)
        assert x.item() == 3 and int(x) == 3
        assert x.view(1).item() == 3
        x.view(1).add_(1)
        with pytest.raises(DataDependent):
            x.item()


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.masked_select(x, x > 0),
        lambda x: torch.unique(x),
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
        lambda x: torch.bincount(x.long()),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: int(x[0]),
    ],
)
def test_data_dependent(mode: FakeMode, ask: Any) -> None:
    x = mode.from_real(torch.ones(4))
    with mode, pytest.raises(DataDependent):
        ask(x)


def test_outside_the_mode(mode: FakeMode) -> None:
    x = mode.from_real(torch.ones(4, 3))
    y = (x + 1).t() @ torch.ones(4, 2)
    assert isinstance(y, FakeTensor) and y.shape == (3, 2)


def test_print_and_pickle(mode: FakeMode) -> None:
    x = mode.from_real(torch.ones(4, 3))
    assert repr(x) == "FakeTensor([4, 3], torch.float32, cpu)"
    with pytest.raises(TypeError):
        x.__reduce_ex__(2)
