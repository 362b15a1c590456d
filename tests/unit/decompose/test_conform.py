"""A decomposition's results have the operator's own type, sizes and strides, whatever way its arguments lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.decompose import OURS
from stoker.decompose.registry import _conforming
from stoker.fake import FakeMode

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten._softmax.default, (torch.randn(3, 4).t(), 0, False)),
        (aten._log_softmax.default, (torch.randn(1, 4).expand(3, 4), 1, False)),
        (aten.masked_fill.Scalar, (torch.randn(4, 3).t(), torch.ones(3, 4, dtype=torch.bool), 0.5)),
        (aten.hardtanh.default, (torch.arange(4),)),
        (
            aten.native_batch_norm.default,
            (torch.randn(2, 3, 4).bfloat16(), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5),
        ),
    ],
    ids=lambda value: str(value) if not isinstance(value, tuple) else "",
)
def test_conforms(operator: Any, arguments: tuple[Any, ...]) -> None:
    mode = FakeMode()
    fakes = tuple(mode.from_real(a) if isinstance(a, torch.Tensor) else a for a in arguments)
    with mode:
        made = OURS[operator](*fakes)
    eager = operator(*arguments)
    for mine, wanted in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (made, eager)), strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (wanted.dtype, wanted.shape, wanted.stride())


def test_another_type_is_a_defect() -> None:
    mode = FakeMode()
    wrong = _conforming(aten.relu.default, lambda x: x.double())
    with mode, pytest.raises(AssertionError, match="aten.relu.default gives torch.float32"):
        wrong(mode.from_real(torch.randn(3)))
