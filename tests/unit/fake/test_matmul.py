"""The matmul that older torch versions need gives what eager gives."""

from __future__ import annotations

import pytest
import torch

from stoker.fake import FakeMode
from stoker.fake.matmul import SymbolicMatmul, matmul
from stoker.shape import ShapeEnv
from stoker.shape.symnode import symint

SHAPES = [
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((3, 4), (2, 4, 5)),
]


@pytest.mark.parametrize("a, b", SHAPES, ids=str)
def test_values(a, b):
    x, y = torch.randn(a, dtype=torch.float64), torch.randn(b, dtype=torch.float64)
    torch.testing.assert_close(matmul(x, y), x @ y)


def test_symbolic_sizes_stay_symbolic():
    env = ShapeEnv()
    mode = FakeMode(env)
    batch = symint(env, env.new_symbol(2))
    x = mode.from_real(torch.zeros(2, 3, 4), sizes=[batch, 3, 4])
    with mode, SymbolicMatmul():
        y = x @ x.transpose(-1, -2)
    assert str(y.shape[0]) == str(batch)
    assert env.guards == []
