"""Interpolation between sizes that are symbolic: torch's own functions ask for plain numbers there.

`torch.nn.functional.interpolate` is entered, and each function it ends in becomes the operator behind it, with the size that the
scale factors say.
"""

from __future__ import annotations

from typing import Any

import torch

from stoker import torch_private
from stoker.capture.builtins.floats import varies
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import indexing, resizing
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import FunctionValue
from stoker.capture.values.sequence import SequenceValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value

interpolate = torch.nn.functional.interpolate


@handles(interpolate)
def interpolate_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    given = dict(zip(NAMES, args)) | kwargs
    scale = given.get("scale_factor")
    factors = scale.items_list(m) if isinstance(scale, SequenceValue) else [scale] if scale is not None else []
    if any(map(_is_varying_int, factors)):
        floats = [m.wrap.object(float).call(m, [f], {}) if _is_varying_int(f) else f for f in factors]
        by_float = TupleValue(floats) if isinstance(scale, SequenceValue) else floats[0]
        return interpolate_(m, **{**given, "scale_factor": by_float})
    if _resizes_by_what_varies(m, args, kwargs):
        return m.wrap.object(resizing.interpolate).call(m, list(args), kwargs)
    function = m.wrap.object(interpolate)
    if not any(_is_symbolic(m, value) for value in (*args, *kwargs.values())) or not isinstance(
        function, FunctionValue
    ):
        return m.record.call(interpolate, list(args), kwargs)
    return m.calls.inline(function, list(args), kwargs)


def _is_varying_int(value: Value) -> bool:
    """Torch reads it as a float, which it does not of a symbol."""
    return isinstance(value, SymbolicValue) and value.python_type() is int


DIMS = {"linear": (3,), "bilinear": (4,), "bicubic": (4,), "trilinear": (5,)}
"""What an image must have for a mode to resize it; others resize each."""
NAMES = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")


def _resizes_by_what_varies(m: Machine, args: tuple[Value, ...], kwargs: dict[str, Value]) -> bool:
    """Is it an image in plain order, resized by a scale that varies, without smoothing?"""
    given = dict(zip(NAMES, args)) | kwargs
    image, scale, mode = given.get("input"), given.get("scale_factor"), given.get("mode", Constant("nearest"))
    factors = scale.items_list(m) if isinstance(scale, SequenceValue) else [scale]
    if not isinstance(image, TensorValue) or not isinstance(mode, Constant) or not any(map(varies, factors)):
        return False
    plain = image.fake.dtype.is_floating_point and not (mode.value.startswith("nearest") and _is_channels_last(image))
    plain = plain and image.fake.is_contiguous()
    sized, smooth = given.get("size", Constant(None)), given.get("antialias", Constant(False))
    said = all(isinstance(value, Constant) and not value.value for value in (sized, smooth))
    fits = len(factors) in (1, image.fake.dim() - 2) and image.fake.dim() in DIMS.get(mode.value, (3, 4, 5))
    return plain and said and fits


def _is_channels_last(image: TensorValue) -> bool:
    """May eager take its kernel for channels that lie side by side? That one finds the nearest otherwise."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    dims = image.fake.dim()
    return dims in formats and image.fake.is_contiguous(memory_format=formats[dims])


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
