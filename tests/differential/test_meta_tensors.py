"""Tensors of device "meta" given to compiled functions: results, gradients and errors are eager's, and no number is drawn."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import stoker

Program = Callable[..., Any]


def plain(*sizes: int) -> torch.Tensor:
    return torch.empty(sizes, device="meta")


def leaf(*sizes: int) -> torch.Tensor:
    return plain(*sizes).requires_grad_()


def write(x: torch.Tensor) -> Any:
    x.add_(1)
    x[0] = 2
    return x, x.t()


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(3, 8, 3, device="meta")
        self.norm = nn.BatchNorm2d(8, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.relu(self.norm(self.convolve(x)))).mean((2, 3))


PROGRAMS: dict[str, tuple[Program, Callable[[], tuple[Any, ...]]]] = {
    "loops": (lambda x, y: (x + y * 2).softmax(-1), lambda: (leaf(3, 4), plain(4))),
    "products": (lambda x, y: (x @ y).relu().sum(-1), lambda: (leaf(3, 4), leaf(4, 5))),
    "views": (lambda x: (x.view(-1), x[1:], x.t()), lambda: (plain(3, 4),)),
    "writes": (write, lambda: (plain(3, 4),)),
    "random numbers": (lambda x: x + torch.rand_like(x) + torch.randn(3, device="meta"), lambda: (leaf(3),)),
    "dropout": (lambda x: F.dropout(x * 2, 0.5), lambda: (leaf(3, 4),)),
    "a number": (lambda x: x.sum().item(), lambda: (plain(3),)),
    "a branch": (lambda x: x + 1 if x.sum() > 0 else x - 1, lambda: (plain(3),)),
    "to the processor": (lambda x: x.cpu() + 1, lambda: (plain(3),)),
    "from the processor": (lambda x: x.to("meta") * 2, lambda: (torch.ones(3),)),
    "beside the processor": (lambda x, y: x * y, lambda: (plain(3), torch.ones(3))),
    "indices of the processor": (lambda x, i: x.index_select(0, i), lambda: (plain(3), torch.zeros(2, dtype=torch.long))),
    "indices of nothing": (lambda x, i: x.gather(0, i), lambda: (torch.ones(3), plain(3).long())),
    "a model": (Images(), lambda: (plain(2, 3, 8, 8),)),
    "a layer of a transformer": (nn.TransformerEncoderLayer(8, 2, 16, device="meta"), lambda: (plain(3, 2, 8),)),
}  # fmt: skip


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.device, value.requires_grad, described(value.grad)
    return [described(v) for v in value] if isinstance(value, (list, tuple)) else value


def observed(program: Program, inputs: tuple[Any, ...], compile: Callable[[Any], Any]) -> Any:
    program = copy.deepcopy(program)
    torch.manual_seed(0)
    try:
        result = compile(program)(*inputs)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
    except (RuntimeError, NotImplementedError) as error:
        return type(error), str(error)
    weights = list(program.parameters()) if isinstance(program, nn.Module) else []
    return described(result), described(inputs), described(weights), torch.rand(1).item()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    program, make = PROGRAMS[name]
    assert observed(program, make(), stoker.compile) == observed(program, make(), lambda p: p)
