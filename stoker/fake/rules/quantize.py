"""Rounding to few values as quantization would, in floating point; beside the result, where the gradient passes. And quantization
itself, of which no graph knows."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta, alike
from stoker.fake.rule import NoMetaRule, rule
from stoker.fake.tensor import FakeTensor


@rule(
    "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)
def fake_quantize(x: FakeTensor, *rest: Any, **more: Any) -> tuple[Meta, Meta]:
    return alike(x.meta), alike(x.meta, torch.bool)


@rule("quantize_per_tensor")
def quantize_per_tensor(x: FakeTensor, *rest: Any, **more: Any) -> Meta:
    """Its elements are integers with a scale beside them, which metadata has no place for. Torch's meta kernel says they are floats."""
    raise NoMetaRule(torch.ops.aten.quantize_per_tensor.default)
