"""Interpolation between sizes that are symbolic: torch's own functions ask for plain numbers there.

`torch.nn.functional.interpolate` is entered, and each function it ends in becomes the operator behind it, with the size that the
scale factors say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from stoker import torch_private
from stoker.capture.handlers import handles
from stoker.capture.polyfill import indexing
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import FunctionValue
from stoker.capture.values.sequence import SequenceValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

interpolate = torch.nn.functional.interpolate


@handles(interpolate)
def interpolate_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    function = m.wrap.object(interpolate)
    if not any(_is_symbolic(m, value) for value in (*args, *kwargs.values())) or not isinstance(
        function, FunctionValue
    ):
        return m.record.call(interpolate, list(args), kwargs)
    return m.calls.inline(function, list(args), kwargs)


def _is_symbolic(m: Machine, value: Value) -> bool:
    if isinstance(value, TensorValue):
        return bool(value.fake.meta.symbolic)  # type: ignore[attr-defined]  # a FakeTensor
    if isinstance(value, SequenceValue):
        return any(_is_symbolic(m, part) for part in value.elements(m))
    return isinstance(value, SymbolicValue)


def _register(function: Any, operator: Any) -> None:
    @handles(function)
    def upsample(m: Machine, input: Value, output_size: Value, *rest: Value) -> Value:
        """`rest`: whether corners are aligned, where that is asked; then the scale factors."""
        *aligned, scales = rest
        if not any(_is_symbolic(m, value) for value in (input, output_size)):
            return m.record.call(function, [input, output_size, *rest], {})
        if isinstance(output_size, Constant) and output_size.value is None:
            output_size = m.wrap.object(indexing.scaled_size).call(m, [input, scales], {})
        known = isinstance(scales, Constant) and scales.value is None
        factors = [Constant(None)] * len(output_size.items_list(m)) if known else scales.items_list(m)
        return m.record.call(operator, [input, output_size, *aligned, *factors], {})


for _function, _operator in torch_private.upsampling().items():
    _register(_function, _operator)
