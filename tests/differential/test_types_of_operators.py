"""An operator of types that eager has no kernel for raises eager's error; of others it gives eager's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F

import stoker

TYPES = [torch.bool, torch.int64, torch.float32, torch.complex64]
ONE: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name) for name in "abs floor round frac logit bitwise_not neg sign square".split()
} | {
    "trace": lambda x: torch.trace(x[None]),
    "elu": lambda x: F.elu(x),
    "mish": lambda x: F.mish(x),
    "softplus": lambda x: F.softplus(x),
    "glu": lambda x: F.glu(torch.cat([x, x])),
    "hardtanh": lambda x: F.hardtanh(x),
    "layer norm": lambda x: F.layer_norm(x, (3,)),
    "reflection": lambda x: F.pad(x[None], (1, 1), mode="reflect"),
    "likelihood": lambda x: F.nll_loss(x[None], torch.tensor([1])),
    "squares": lambda x: F.mse_loss(x, x * x),
    "logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "products": lambda x: torch.addcmul(x, x, x, value=0.5),
    "between": lambda x: torch.lerp(x, x * x, 0.3),
    "a part": lambda x: torch.add(x, x, alpha=0.5),
    "a truth": lambda x: torch.add(x, x, alpha=True),
    "running": lambda x: x.logcumsumexp(0),
    "buckets": lambda x: torch.bucketize(x, torch.tensor([1, 2]).to(x.dtype)),
}
TWO = "bitwise_and bitwise_xor bitwise_left_shift logaddexp logaddexp2 xlogy remainder maximum".split()
NUMBERS = {
    "add": lambda x, n: x + n,
    "multiplied by": lambda x, n: n * x,
    "bits": lambda x, n: x & n,
    "equal": lambda x, n: x == n,
    "where": lambda x, n: torch.where(x > 0, x, n),
    "fill": lambda x, n: x.clone().fill_(n),
    "full": lambda x, n: torch.full((2,), n),
    "full like": lambda x, n: torch.full_like(x, n),
    "tensor": lambda x, n: torch.tensor(n) + x,
    "list": lambda x, n: torch.tensor([n, n]),
    "clamp": lambda x, n: x.clamp(n),
    "range": lambda x, n: torch.arange(n),
    "flag": lambda x, n: x.sum(0, keepdim=n),
    "array": lambda x, n: torch.from_numpy(numpy.array([True, False]) & n),
}


def _of(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([1, 0, 3]).to(dtype)


def _outcome(program: Callable[..., Any], *given: Any) -> Any:
    try:
        return program(*given)
    except Exception as error:  # noqa: BLE001  (whatever eager raises)
        return type(error), str(error)


def _same(program: Callable[..., Any], *given: Any) -> None:
    stoker.reset()
    wanted, found = _outcome(program, *given), _outcome(stoker.compile(program), *given)
    if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, wanted, equal_nan=True)
    else:
        assert found == wanted, given


@pytest.mark.parametrize("name", ONE)
def test_of_one(name: str) -> None:
    for dtype in TYPES:
        _same(lambda x: ONE[name](x), _of(dtype))


@pytest.mark.parametrize("name", TWO)
def test_of_two(name: str) -> None:
    for first in TYPES:
        for second in dict.fromkeys((first, torch.float32)):
            _same(lambda x, y: getattr(torch, name)(x, y), _of(first), _of(second) + _of(second))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy(name: str) -> None:
    """Torch takes a truth value of numpy's for 0.0 or 1.0, and not for a flag."""
    for number in (numpy.bool_(True), numpy.bool_(False), numpy.float32(0.5)):
        for dtype in (torch.int64, torch.float32):
            _same(lambda x: NUMBERS[name](x, number), _of(dtype))
