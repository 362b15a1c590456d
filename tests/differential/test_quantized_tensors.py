"""Tensors of integers with a scale beside them, made in the middle of a program: between graphs, as in eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stoker

SCALE, ZERO = torch.tensor(0.1), torch.tensor(3)

PROGRAMS = {
    "there and back": lambda x: torch.quantize_per_tensor(x * 2, 0.1, 3, torch.qint8).dequantize() + x,
    "by tensors": lambda x: torch.quantize_per_tensor(x * 2, SCALE, ZERO, torch.quint8).dequantize() + x,
    "its integers": lambda x: torch.quantize_per_tensor(x * 2, 0.1, 3, torch.qint32).int_repr() + 1,
    "several": lambda x: [q.dequantize() for q in torch.quantize_per_tensor([x, x * 2], SCALE.expand(2), ZERO.expand(2), torch.qint8)],
    "given away": lambda x: (torch.quantize_per_tensor(x + 1, 0.1, 3, torch.qint8), x * 2),
    "channels": lambda x: torch.quantize_per_channel(x, SCALE.expand(3), ZERO.expand(3), 1, torch.qint8).dequantize() * 2,
    "by its range": lambda x: torch.quantize_per_tensor_dynamic(x * 2, torch.qint8, False).dequantize() + x,
}  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_quantized:
        return value.int_repr(), value.q_scale(), value.q_zero_point()
    return type(value)(map(_plain, value)) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_quantized_in_the_middle(name: str, dynamic: bool | None, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = stoker.compile(program, backend=backend, dynamic=dynamic)
    with warnings.catch_warnings(action="ignore"):  # torch will drop these types
        for rows in (2, 2, 4):
            x = torch.linspace(-1, 1, rows * 3).view(rows, 3)
            torch.testing.assert_close(_plain(compiled(x)), _plain(program(x)))
