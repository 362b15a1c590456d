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
_OF_THREE: dict[str, Callable[..., Tensor]] = {
    "addcmul": lambda t, a, b, value=1: torch.addcmul(t, a, b, value=value),
    "addcdiv": lambda t, a, b, value=1: torch.addcdiv(t, a, b, value=value),
}


def _register(function: Callable[..., Tensor], *names: str) -> None:
    """Operators on lists; an operand that is no list is one for all tensors."""

    @decompose(*(f"_foreach_{name}" for name in names))
    def of_lists(tensors: Sequence[Tensor], *others: Any, **options: Any) -> list[Tensor]:
        operands = [o if isinstance(o, (list, tuple)) else [o] * len(tensors) for o in others]
        return [function(*given, **options) for given in zip(tensors, *operands)]


for _name in _OF_ONE.split():
    _register(getattr(torch, _name), _name)
for _name, _function in _OF_TWO.items():
    _register(_function, *(f"{_name}.{kind}" for kind in ("List", "Scalar", "ScalarList", "Tensor")))
for _name, _function in _OF_THREE.items():
    _register(_function, f"{_name}.Scalar", f"{_name}.ScalarList")
_register(torch.lerp, "lerp.List", "lerp.Scalar", "lerp.ScalarList")
_register(torch.zeros_like, "zero")


@decompose("_foreach_pow.ScalarAndTensor")
def power_of_number(base: Any, exponents: Sequence[Tensor]) -> list[Tensor]:
    return [torch.pow(base, e) for e in exponents]
