"""Operators on lists of tensors, which optimizers are written with: one operator for each tensor.

A list's operator is a kernel for many tensors, and reads and writes all of them each time. One for each tensor can be fused with the next,
so that a whole optimizer step reads and writes a parameter once; on a device, kernels that differ in their sizes alone are launched
together again. Norms stay: they end in a number for each tensor, and nothing follows to be fused with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose

_OF_ONE = """
abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin
sinh sqrt tan tanh trunc clone
"""
_OF_TWO: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "clamp_max": torch.clamp_max,
    "clamp_min": torch.clamp_min,
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
}
"""The second operand is a list, or one number or tensor for all."""
_OF_THREE: dict[str, Callable[..., Tensor]] = {"addcmul": torch.addcmul, "addcdiv": torch.addcdiv}

Tensors = Sequence[Tensor]


def _each(value: Any, length: int) -> Sequence[Any]:
    """An operand for each tensor."""
    return value if isinstance(value, (list, tuple)) else [value] * length


def _register_one(name: str) -> None:
    function = getattr(torch, name)

    @decompose(f"_foreach_{name}")
    def of_one(tensors: Tensors, **options: Any) -> list[Tensor]:
        return [function(t, **options) for t in tensors]


def _register_two(name: str, function: Callable[..., Tensor]) -> None:
    kinds = ("List", "Scalar", "ScalarList", "Tensor")

    @decompose(*(f"_foreach_{name}.{kind}" for kind in kinds))
    def of_two(tensors: Tensors, other: Any, **options: Any) -> list[Tensor]:
        return [function(t, o, **options) for t, o in zip(tensors, _each(other, len(tensors)))]


def _register_three(name: str, function: Callable[..., Tensor]) -> None:
    @decompose(f"_foreach_{name}.Scalar", f"_foreach_{name}.ScalarList")
    def of_three(tensors: Tensors, first: Tensors, second: Tensors, value: Any = 1) -> list[Tensor]:
        factors = _each(value, len(tensors))
        return [function(t, a, b, value=v) for t, a, b, v in zip(tensors, first, second, factors)]


for _name in _OF_ONE.split():
    _register_one(_name)
for _name, _function in _OF_TWO.items():
    _register_two(_name, _function)
for _name, _function in _OF_THREE.items():
    _register_three(_name, _function)


@decompose("_foreach_lerp.List", "_foreach_lerp.Scalar", "_foreach_lerp.ScalarList")
def lerp(tensors: Tensors, ends: Tensors, weights: Any) -> list[Tensor]:
    return [torch.lerp(t, e, w) for t, e, w in zip(tensors, ends, _each(weights, len(tensors)))]


@decompose("_foreach_pow.ScalarAndTensor")
def power_of_number(base: Any, exponents: Tensors) -> list[Tensor]:
    return [torch.pow(base, e) for e in exponents]


@decompose("_foreach_zero")
def zero(tensors: Tensors) -> list[Tensor]:
    return [torch.zeros_like(t) for t in tensors]
