"""Operands of another type are converted before the element-wise iterator looks at their strides: on a processor, as eager does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker.fake import FakeMode

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "turned": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "stepped": lambda x: torch.stack([x, x], -1)[..., 0],
    "spread rows": lambda x: x[:1].expand(x.shape),
    "spread columns": lambda x: x[:, :1].expand(x.shape),
}
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.float64]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "div": torch.div,
    "div down": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "lt": torch.lt,
    "logical_and": torch.logical_and,
    "atan2": torch.atan2,
    "xlogy": torch.xlogy,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "clamp_min": torch.clamp_min,
    "where, first": lambda a, b: torch.where(a > 0, a, b),
    "where, second": lambda a, b: torch.where(b > 0, a, b),
    "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "addcdiv": lambda a, b: torch.addcdiv(a, b, b),
    "mse_loss": lambda a, b: torch.nn.functional.mse_loss(a, b, reduction="none"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_strides_of_mixed_types(name: str) -> None:
    compared = 0
    cases = list(itertools.product(DTYPES, LAYOUTS))
    for (a_dtype, a_layout), (b_dtype, b_layout) in itertools.product(cases, cases):
        a = LAYOUTS[a_layout](torch.randint(1, 5, (4, 6)).to(a_dtype))
        b = LAYOUTS[b_layout](torch.randint(1, 5, (4, 6)).to(b_dtype))
        try:
            eager = OPERATORS[name](a, b)
        except RuntimeError:
            continue  # not for these types
        mode = FakeMode()
        with mode:
            found = OPERATORS[name](mode.from_real(a), mode.from_real(b))
        assert (found.dtype, tuple(found.stride())) == (eager.dtype, eager.stride()), (
            a_dtype,
            a_layout,
            b_dtype,
            b_layout,
        )
        compared += 1
    assert compared >= 50


GRADIENTS: dict[str, tuple[Any, ...]] = {
    "threshold_backward": (0,),
    "leaky_relu_backward": (0.1, False),
    "hardtanh_backward": (-1, 1),
    "softplus_backward": (1, 20),
    "softshrink_backward": (0.5,),
    "gelu_backward": (),
    "silu_backward": (),
    "tanh_backward": (),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_activations(name: str) -> None:
    """Which operand the iterator is given first is a matter of the operator."""
    operator = getattr(torch.ops.aten, name).default
    for first, second in itertools.product(LAYOUTS.values(), repeat=2):
        a, b = first(torch.randn(3, 4, 5)), second(torch.randn(3, 4, 5))
        wanted = operator(a, b, *GRADIENTS[name])
        mode = FakeMode()
        found = mode.propagate(operator, (mode.from_real(a), mode.from_real(b), *GRADIENTS[name]), {})
        assert found.stride() == wanted.stride()
